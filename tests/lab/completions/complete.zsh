# zsh complete.zsh FOLDER LINE: what zsh offers at the end of LINE, one a line.
#
# zsh completes only where its line editor runs, so an interactive zsh runs on a pseudo-terminal, and a wrapper around
# compadd, which every offer goes through, prints what is offered. No dump is written (-D, and no -d after it: that turns it
# on again, and as root it would put a file in the place of the device that it was given).
zmodload zsh/zpty
zpty inner zsh -f -i
{
    print -r -- "PROMPT= RPROMPT= PS2="
    print -r -- "fpath=(${(q)1} \$fpath)"
    print -r -- "autoload -U compinit && compinit -u -D"
    print -r -- 'compadd() {
        if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
        local -a __hits
        builtin compadd -O __hits "$@"
        (( ${#__hits} )) && print -rl -- "OFFER "${^__hits}
        builtin compadd "$@"
    }'
    print -r -- 'stty -echo'
    print -r -- 'complete-and-end() { zle complete-word; print -r -- "END""-OF-OFFERS" }; zle -C complete-word .complete-word _main_complete; zle -N complete-and-end; bindkey "^I" complete-and-end'
    print -r -- 'print READY"-TO-GO"'
} | while IFS= read -r line; do zpty -w inner "$line"; done
output=
zpty -r -m inner output '*READY-TO-GO*' || exit 1
zpty -n -w inner "$2"$'\t'
zpty -r -m inner output '*END-OF-OFFERS*' || exit 1
print -r -- "$output" | tr -d '\r' | sed -n 's/.*OFFER //p'
zpty -d inner
