# bash complete.bash FOLDER LINE: what bash offers at the end of LINE, one a line.
. "$1/cgleaf.bash"
# As readline splits it: a blank at the end starts an empty word.
read -ra COMP_WORDS <<<"$2"
[[ $2 != *' ' ]] || COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
COMP_LINE=$2
COMP_POINT=${#2}
function=$(complete -p cgleaf | sed 's/.*-F \([^ ]*\).*/\1/')
COMPREPLY=()
# What readline itself would add where the function says that it has nothing (`compopt`) is not ours.
"$function" cgleaf "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}" 2>/dev/null || true
printf '%s\n' "${COMPREPLY[@]}"
