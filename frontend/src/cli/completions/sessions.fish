
# The ids and names of the sessions that are there. Neither can hold a character that would need quoting.
function __fish_cgleaf_sessions
    command cgleaf list --json 2>/dev/null | grep -oE '"(session|name)":"[^"]+"' | cut -d'"' -f4
end

# Behind `--` stands another program's command line.
function __fish_cgleaf_program
    set -l words (commandline -opc)
    set -l at (contains -i -- -- $words); or return
    complete -C (string join ' ' -- (string escape -- $words[(math $at + 1)..-1]) (commandline -ct))
end
complete -c cgleaf -n "contains -- -- (commandline -opc)" -f -a "(__fish_cgleaf_program)"
