# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_cgleaf_global_optspecs
    string join \n json q/quiet v/verbose socket= scope-dir= h/help V/version
end

function __fish_cgleaf_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_cgleaf_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_cgleaf_using_subcommand
    set -l cmd (__fish_cgleaf_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c cgleaf -n "__fish_cgleaf_needs_command" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_needs_command" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_needs_command" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -s h -l help -d 'Print help'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -s V -l version -d 'Print version'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -f -a "run" -d 'Run a program in a session of its own and answer with its exit status'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -f -a "exec" -d 'Enrol this process and become the program: same pid, no process of ours stays behind'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -f -a "start" -d 'Start a program detached and print the session\'s id'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -f -a "list" -d 'List the sessions'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -f -a "ls" -d 'List the sessions'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -f -a "top" -d 'Show what the sessions use, live on a terminal'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -f -a "show" -d 'Show one session'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -f -a "ps" -d 'List a session\'s processes'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -f -a "wait" -d 'Wait for a session\'s end and answer with the program\'s exit status where it is known'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -f -a "logs" -d 'Print what a started program wrote'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -f -a "freeze" -d 'Freeze a session: every process of it stands still until it is thawed'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -f -a "thaw" -d 'Thaw a frozen session'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -f -a "signal" -d 'Send a signal to every process of a session, and miss none'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -f -a "destroy" -d 'End everything that sessions started, and prove it'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -f -a "gc" -d 'Take away the records of sessions that are proven over'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -f -a "adopt" -d 'Take a running process and what it started into a session'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -f -a "doctor" -d 'Say what cgleaf can do here, and what would raise it'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -f -a "helper" -d 'The helper: serve, status, stop'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -f -a "completions" -d 'Print the completions for a shell'
complete -c cgleaf -n "__fish_cgleaf_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand run" -l leftovers -d 'What to do with processes that outlive the program' -r -f -a "kill\t'They are ended; one line on stderr says so'
keep\t'They go on; the session\'s id is printed'
wait\t'They are waited for'"
complete -c cgleaf -n "__fish_cgleaf_using_subcommand run" -l grace -d 'Send SIGTERM first and wait this long before what is left is killed' -r
complete -c cgleaf -n "__fish_cgleaf_using_subcommand run" -l timeout -d 'End the session after this time; the exit status is then 124' -r
complete -c cgleaf -n "__fish_cgleaf_using_subcommand run" -l session -d 'The session\'s id, chosen by the caller: 1 to 64 of [A-Za-z0-9._-], no leading dot or dash' -r
complete -c cgleaf -n "__fish_cgleaf_using_subcommand run" -l name -d 'A name, unique among living sessions' -r
complete -c cgleaf -n "__fish_cgleaf_using_subcommand run" -l parent -d 'Put the session inside this one, by id or name' -r
complete -c cgleaf -n "__fish_cgleaf_using_subcommand run" -l tier -d 'How the session is to be kept' -r -f -a "auto\t'A leaf where one can be had, else the group tier with a notice'
cgroup\t'A leaf, or nothing is started'
group\t'Processes, proven as far as that goes'"
complete -c cgleaf -n "__fish_cgleaf_using_subcommand run" -l status-fd -d 'Write one JSON line to this descriptor when the session is enrolled or refused' -r
complete -c cgleaf -n "__fish_cgleaf_using_subcommand run" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand run" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand run" -l die-with-frontend -d 'End the session when cgleaf itself ends, however that happens'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand run" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand run" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand run" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand exec" -l session -d 'The session\'s id, chosen by the caller: 1 to 64 of [A-Za-z0-9._-], no leading dot or dash' -r
complete -c cgleaf -n "__fish_cgleaf_using_subcommand exec" -l name -d 'A name, unique among living sessions' -r
complete -c cgleaf -n "__fish_cgleaf_using_subcommand exec" -l parent -d 'Put the session inside this one, by id or name' -r
complete -c cgleaf -n "__fish_cgleaf_using_subcommand exec" -l tier -d 'How the session is to be kept' -r -f -a "auto\t'A leaf where one can be had, else the group tier with a notice'
cgroup\t'A leaf, or nothing is started'
group\t'Processes, proven as far as that goes'"
complete -c cgleaf -n "__fish_cgleaf_using_subcommand exec" -l status-fd -d 'Write one JSON line to this descriptor when the session is enrolled or refused' -r
complete -c cgleaf -n "__fish_cgleaf_using_subcommand exec" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand exec" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand exec" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand exec" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand exec" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand exec" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand start" -l log -d 'Where the program\'s output goes; by default beside the session\'s record' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand start" -l session -d 'The session\'s id, chosen by the caller: 1 to 64 of [A-Za-z0-9._-], no leading dot or dash' -r
complete -c cgleaf -n "__fish_cgleaf_using_subcommand start" -l name -d 'A name, unique among living sessions' -r
complete -c cgleaf -n "__fish_cgleaf_using_subcommand start" -l parent -d 'Put the session inside this one, by id or name' -r
complete -c cgleaf -n "__fish_cgleaf_using_subcommand start" -l tier -d 'How the session is to be kept' -r -f -a "auto\t'A leaf where one can be had, else the group tier with a notice'
cgroup\t'A leaf, or nothing is started'
group\t'Processes, proven as far as that goes'"
complete -c cgleaf -n "__fish_cgleaf_using_subcommand start" -l status-fd -d 'Write one JSON line to this descriptor when the session is enrolled or refused' -r
complete -c cgleaf -n "__fish_cgleaf_using_subcommand start" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand start" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand start" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand start" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand start" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand start" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand list" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand list" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand list" -s a -l all -d 'Also show sessions that are over'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand list" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand list" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand list" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand list" -s h -l help -d 'Print help'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand ls" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand ls" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand ls" -s a -l all -d 'Also show sessions that are over'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand ls" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand ls" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand ls" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand ls" -s h -l help -d 'Print help'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand top" -s i -l interval -d 'How long to look before showing what was used meanwhile' -r
complete -c cgleaf -n "__fish_cgleaf_using_subcommand top" -s n -l count -d 'Show so many tables, one below the other, and end; 1 where stdout is no terminal' -r
complete -c cgleaf -n "__fish_cgleaf_using_subcommand top" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand top" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand top" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand top" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand top" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand top" -s h -l help -d 'Print help'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand show" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand show" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand show" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand show" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand show" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand show" -s h -l help -d 'Print help'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand ps" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand ps" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand ps" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand ps" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand ps" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand ps" -s h -l help -d 'Print help'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand wait" -l timeout -d 'Give up after this time' -r
complete -c cgleaf -n "__fish_cgleaf_using_subcommand wait" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand wait" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand wait" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand wait" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand wait" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand wait" -s h -l help -d 'Print help'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand logs" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand logs" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand logs" -s f -l follow -d 'Go on until the session has ended'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand logs" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand logs" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand logs" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand logs" -s h -l help -d 'Print help'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand freeze" -l for -d 'Hold it frozen for this time, then thaw it; it is thawed too if cgleaf is killed meanwhile' -r
complete -c cgleaf -n "__fish_cgleaf_using_subcommand freeze" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand freeze" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand freeze" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand freeze" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand freeze" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand freeze" -s h -l help -d 'Print help'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand thaw" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand thaw" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand thaw" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand thaw" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand thaw" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand thaw" -s h -l help -d 'Print help'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand signal" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand signal" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand signal" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand signal" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand signal" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand signal" -s h -l help -d 'Print help'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand destroy" -l grace -d 'Send SIGTERM first and wait this long before what is left is killed' -r
complete -c cgleaf -n "__fish_cgleaf_using_subcommand destroy" -l timeout -d 'Give up waiting for the end after this time' -r
complete -c cgleaf -n "__fish_cgleaf_using_subcommand destroy" -l strays -d 'What to do about processes that left the leaf' -r -f -a "name\t'They are named, and the answer is 5'
kill\t'Those tied to a member by parentage are ended too'
ignore\t'They are not looked for'"
complete -c cgleaf -n "__fish_cgleaf_using_subcommand destroy" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand destroy" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand destroy" -l if-exists -d 'That there is no such session, or that it is over, is fine; its id will then not start any more'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand destroy" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand destroy" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand destroy" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand destroy" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand gc" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand gc" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand gc" -l dry-run -d 'Say what would be removed and remove nothing'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand gc" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand gc" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand gc" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand gc" -s h -l help -d 'Print help'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand adopt" -l name -d 'The session\'s name' -r
complete -c cgleaf -n "__fish_cgleaf_using_subcommand adopt" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand adopt" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand adopt" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand adopt" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand adopt" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand adopt" -s h -l help -d 'Print help'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand doctor" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand doctor" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand doctor" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand doctor" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand doctor" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and not __fish_seen_subcommand_from serve status stop help" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and not __fish_seen_subcommand_from serve status stop help" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and not __fish_seen_subcommand_from serve status stop help" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and not __fish_seen_subcommand_from serve status stop help" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and not __fish_seen_subcommand_from serve status stop help" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and not __fish_seen_subcommand_from serve status stop help" -s h -l help -d 'Print help'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and not __fish_seen_subcommand_from serve status stop help" -f -a "serve" -d 'Be the helper; the arguments are cgleaf-helper\'s own'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and not __fish_seen_subcommand_from serve status stop help" -f -a "status" -d 'Show the helpers that answer'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and not __fish_seen_subcommand_from serve status stop help" -f -a "stop" -d 'End the helper, if it has no session'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and not __fish_seen_subcommand_from serve status stop help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and __fish_seen_subcommand_from serve" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and __fish_seen_subcommand_from serve" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and __fish_seen_subcommand_from serve" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and __fish_seen_subcommand_from serve" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and __fish_seen_subcommand_from serve" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and __fish_seen_subcommand_from status" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and __fish_seen_subcommand_from status" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and __fish_seen_subcommand_from status" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and __fish_seen_subcommand_from status" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and __fish_seen_subcommand_from status" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and __fish_seen_subcommand_from status" -s h -l help -d 'Print help'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and __fish_seen_subcommand_from stop" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and __fish_seen_subcommand_from stop" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and __fish_seen_subcommand_from stop" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and __fish_seen_subcommand_from stop" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and __fish_seen_subcommand_from stop" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and __fish_seen_subcommand_from stop" -s h -l help -d 'Print help'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and __fish_seen_subcommand_from help" -f -a "serve" -d 'Be the helper; the arguments are cgleaf-helper\'s own'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and __fish_seen_subcommand_from help" -f -a "status" -d 'Show the helpers that answer'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and __fish_seen_subcommand_from help" -f -a "stop" -d 'End the helper, if it has no session'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand helper; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand completions" -l socket -d 'Ask the helper at this socket and no other' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand completions" -l scope-dir -d 'Give a helper that has to be started this cgroup directory for its leaves [env: CGLEAF_SCOPE_DIR]' -r -F
complete -c cgleaf -n "__fish_cgleaf_using_subcommand completions" -l json -d 'Print one JSON object on stdout, success or failure (run and exec: needs --status-fd)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand completions" -s q -l quiet -d 'Say nothing but errors'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand completions" -s v -l verbose -d 'Say on stderr what is done, each kernel operation'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand completions" -s h -l help -d 'Print help'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and not __fish_seen_subcommand_from run exec start list top show ps wait logs freeze thaw signal destroy gc adopt doctor helper completions help" -f -a "run" -d 'Run a program in a session of its own and answer with its exit status'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and not __fish_seen_subcommand_from run exec start list top show ps wait logs freeze thaw signal destroy gc adopt doctor helper completions help" -f -a "exec" -d 'Enrol this process and become the program: same pid, no process of ours stays behind'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and not __fish_seen_subcommand_from run exec start list top show ps wait logs freeze thaw signal destroy gc adopt doctor helper completions help" -f -a "start" -d 'Start a program detached and print the session\'s id'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and not __fish_seen_subcommand_from run exec start list top show ps wait logs freeze thaw signal destroy gc adopt doctor helper completions help" -f -a "list" -d 'List the sessions'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and not __fish_seen_subcommand_from run exec start list top show ps wait logs freeze thaw signal destroy gc adopt doctor helper completions help" -f -a "top" -d 'Show what the sessions use, live on a terminal'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and not __fish_seen_subcommand_from run exec start list top show ps wait logs freeze thaw signal destroy gc adopt doctor helper completions help" -f -a "show" -d 'Show one session'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and not __fish_seen_subcommand_from run exec start list top show ps wait logs freeze thaw signal destroy gc adopt doctor helper completions help" -f -a "ps" -d 'List a session\'s processes'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and not __fish_seen_subcommand_from run exec start list top show ps wait logs freeze thaw signal destroy gc adopt doctor helper completions help" -f -a "wait" -d 'Wait for a session\'s end and answer with the program\'s exit status where it is known'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and not __fish_seen_subcommand_from run exec start list top show ps wait logs freeze thaw signal destroy gc adopt doctor helper completions help" -f -a "logs" -d 'Print what a started program wrote'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and not __fish_seen_subcommand_from run exec start list top show ps wait logs freeze thaw signal destroy gc adopt doctor helper completions help" -f -a "freeze" -d 'Freeze a session: every process of it stands still until it is thawed'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and not __fish_seen_subcommand_from run exec start list top show ps wait logs freeze thaw signal destroy gc adopt doctor helper completions help" -f -a "thaw" -d 'Thaw a frozen session'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and not __fish_seen_subcommand_from run exec start list top show ps wait logs freeze thaw signal destroy gc adopt doctor helper completions help" -f -a "signal" -d 'Send a signal to every process of a session, and miss none'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and not __fish_seen_subcommand_from run exec start list top show ps wait logs freeze thaw signal destroy gc adopt doctor helper completions help" -f -a "destroy" -d 'End everything that sessions started, and prove it'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and not __fish_seen_subcommand_from run exec start list top show ps wait logs freeze thaw signal destroy gc adopt doctor helper completions help" -f -a "gc" -d 'Take away the records of sessions that are proven over'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and not __fish_seen_subcommand_from run exec start list top show ps wait logs freeze thaw signal destroy gc adopt doctor helper completions help" -f -a "adopt" -d 'Take a running process and what it started into a session'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and not __fish_seen_subcommand_from run exec start list top show ps wait logs freeze thaw signal destroy gc adopt doctor helper completions help" -f -a "doctor" -d 'Say what cgleaf can do here, and what would raise it'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and not __fish_seen_subcommand_from run exec start list top show ps wait logs freeze thaw signal destroy gc adopt doctor helper completions help" -f -a "helper" -d 'The helper: serve, status, stop'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and not __fish_seen_subcommand_from run exec start list top show ps wait logs freeze thaw signal destroy gc adopt doctor helper completions help" -f -a "completions" -d 'Print the completions for a shell'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and not __fish_seen_subcommand_from run exec start list top show ps wait logs freeze thaw signal destroy gc adopt doctor helper completions help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and __fish_seen_subcommand_from helper" -f -a "serve" -d 'Be the helper; the arguments are cgleaf-helper\'s own'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and __fish_seen_subcommand_from helper" -f -a "status" -d 'Show the helpers that answer'
complete -c cgleaf -n "__fish_cgleaf_using_subcommand help; and __fish_seen_subcommand_from helper" -f -a "stop" -d 'End the helper, if it has no session'

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
complete -c cgleaf -n "__fish_cgleaf_using_subcommand show" -f -a "(__fish_cgleaf_sessions)"
complete -c cgleaf -n "__fish_cgleaf_using_subcommand ps" -f -a "(__fish_cgleaf_sessions)"
complete -c cgleaf -n "__fish_cgleaf_using_subcommand wait" -f -a "(__fish_cgleaf_sessions)"
complete -c cgleaf -n "__fish_cgleaf_using_subcommand logs" -f -a "(__fish_cgleaf_sessions)"
complete -c cgleaf -n "__fish_cgleaf_using_subcommand freeze" -f -a "(__fish_cgleaf_sessions)"
complete -c cgleaf -n "__fish_cgleaf_using_subcommand thaw" -f -a "(__fish_cgleaf_sessions)"
complete -c cgleaf -n "__fish_cgleaf_using_subcommand signal" -f -a "(__fish_cgleaf_sessions)"
complete -c cgleaf -n "__fish_cgleaf_using_subcommand destroy" -f -a "(__fish_cgleaf_sessions)"
complete -c cgleaf -l parent -x -a "(__fish_cgleaf_sessions)"
