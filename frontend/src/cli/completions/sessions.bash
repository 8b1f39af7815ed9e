
# The ids and names of the sessions that are there. Neither can hold a character that would need quoting.
_cgleaf_sessions() {
    command "$1" list --json 2>/dev/null | grep -oE '"(session|name)":"[^"]+"' | cut -d'"' -f4
}

_cgleaf_here() {
    local word= command= before= index
    for ((index = 1; index < COMP_CWORD; index++)); do
        word=${COMP_WORDS[index]}
        if [[ $word == -- ]]; then
            # Behind it stands another program's command line.
            if declare -F _command_offset >/dev/null; then
                _command_offset $((index + 1))
            elif ((COMP_CWORD == index + 1)); then
                mapfile -t COMPREPLY < <(compgen -c -- "$2")
            fi
            return
        fi
        if [[ -z $command && $word != -* && " @VALUE_OPTIONS@ " != *" $before "* ]]; then
            command=$word
        fi
        before=$word
    done
    if [[ " @SESSION_OPTIONS@ " == *" $3 "* ]] ||
        [[ $2 != -* && " @SESSION_COMMANDS@ " == *" ${command:-none} "* && " @VALUE_OPTIONS@ " != *" $3 "* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_cgleaf_sessions "$1")" -- "$2")
        return
    fi
    _cgleaf "$@"
}

complete -F _cgleaf_here -o bashdefault -o default cgleaf
