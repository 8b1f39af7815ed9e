# The ids and names of the sessions that are there. Neither can hold a character that would need quoting.
_cgleaf_sessions() {
    local -a sessions
    sessions=(${(f)"$(command cgleaf list --json 2>/dev/null | grep -oE '"(session|name)":"[^"]+"' | cut -d'"' -f4)"})
    _describe -t sessions session sessions
}

# Behind `--` stands another program's command line.
_cgleaf_program() {
    _normal
}
