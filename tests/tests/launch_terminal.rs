//! `run` on a real terminal behaves as the program itself would.

use std::fs;
use std::path::Path;
use std::process::Command;

use cgleaf_tests::frontend::{Sandbox, finish};
use cgleaf_tests::scratch::{start_tmux, wait_until};
use cgleaf_tests::terminal::Terminal;

/// The state of the frontend of a session, as its record names it.
fn frontend_state(sandbox: &Sandbox, session: &str) -> Option<char> {
    let record = sandbox.record(session)?;
    let stat = fs::read_to_string(format!("/proc/{}/stat", record["maker"]["pid"])).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// B02: a program that sets the terminal's modes, in the foreground.
#[test]
fn setting_the_terminal_ends_at_once() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut terminal = Terminal::new(&sandbox);
    let (_, status) = terminal.line("cgleaf run -- stty -echo");
    assert_eq!(status, 0);
    let (_, status) = terminal.line("cgleaf run -- stty echo");
    assert_eq!(status, 0);
}

/// B02: the same in the background: stopped like any job, and neither the frontend nor destroy hangs. Nobody has to continue what
/// has ended.
#[test]
fn setting_the_terminal_in_the_background_stops_the_job() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut terminal = Terminal::new(&sandbox);
    terminal.type_in("cgleaf run --session bg -- stty -echo &\r");
    wait_until("the frontend stopped", || {
        frontend_state(&sandbox, "bg") == Some('T')
    });
    terminal.type_in("jobs -l\r");
    terminal.expect("Stopped (tty output)");
    let (_, status) = terminal.line("cgleaf destroy bg");
    assert_eq!(status, 0);
    let (_, status) = terminal.line("wait $!");
    assert_eq!(status, 137);
}

/// Notices in the background with `stty tostop`: the frontend itself is not stopped by what it writes.
#[test]
fn the_frontends_own_output_never_stops_it() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut terminal = Terminal::new(&sandbox);
    terminal.line("stty tostop");
    terminal.type_in(
        "cgleaf run --session n -- sh -c 'setsid sleep 1000 >/dev/null 2>&1 & exit 3' &\r",
    );
    terminal.expect("outlived the program");
    let (_, status) = terminal.line("wait %1");
    assert_eq!(status, 3);
}

/// The very first command, interrupted: the program ends, the helper that was just started does not.
#[test]
fn ctrl_c_ends_the_program_and_not_the_helper() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut terminal = Terminal::new(&sandbox);
    terminal.type_in("cgleaf run --session first -- sleep 1000; echo \"<$?>\"\r");
    await_program(&sandbox, "first", "sleep");
    terminal.type_in("\u{3}");
    // bash does not go on with a list that was interrupted, if the program died of it: so loops end.
    terminal.expect("$ ");
    assert!(!terminal.shown().contains("<130>"), "{}", terminal.shown());
    wait_until("the end", || sandbox.leaves().is_empty());
    assert_eq!(
        sandbox.record("first").expect("a record")["exit"]["signal"],
        2
    );
    assert!(sandbox.helper_pid().is_some());
    let (_, status) = terminal.line("cgleaf run -- true");
    assert_eq!(status, 0);
}

fn await_program(sandbox: &Sandbox, session: &str, program: &str) {
    wait_until("the program", || {
        sandbox.members(session).iter().any(|pid| {
            fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.starts_with(program.as_bytes()))
        })
    });
}

#[test]
fn ctrl_c_is_delivered_once() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut terminal = Terminal::new(&sandbox);
    let script =
        "trap \"n=\\$((n+1)); echo int\\$n\" INT; echo rea\"\"dy; while :; do sleep .05; done";
    terminal.type_in(&format!("cgleaf run --session once -- sh -c '{script}'\r"));
    terminal.expect("ready");
    terminal.type_in("\u{3}");
    terminal.expect("int1");
    terminal.type_in("\u{3}");
    terminal.expect("int2");
    terminal.type_in("\u{1c}");
    wait_until("the end", || sandbox.leaves().is_empty());
    assert!(!terminal.shown().contains("int3"), "{}", terminal.shown());
}

#[test]
fn ctrl_z_and_fg() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut terminal = Terminal::new(&sandbox);
    terminal
        .type_in("cgleaf run --session z -- sh -c 'echo rea\"\"dy; read x; echo got-$x; exit 5'\r");
    terminal.expect("ready");
    for _ in 0..3 {
        terminal.type_in("\u{1a}");
        terminal.expect("Stopped");
        wait_until("the frontend stopped", || {
            frontend_state(&sandbox, "z") == Some('T')
        });
        terminal.type_in("fg\r");
        wait_until("the frontend going on", || {
            frontend_state(&sandbox, "z") == Some('S')
        });
        await_state(&sandbox, "z", 'S');
    }
    terminal.type_in("hello\r");
    terminal.expect("got-hello");
    let (_, status) = terminal.line("true $?");
    assert_eq!(status, 0);
    assert_eq!(sandbox.record("z").expect("a record")["exit"]["code"], 5);
}

/// Waits until a session's leader is in this state.
fn await_state(sandbox: &Sandbox, session: &str, state: char) {
    wait_until("the leader's state", || {
        let Some(record) = sandbox.record(session) else {
            return false;
        };
        let stat = fs::read_to_string(format!("/proc/{}/stat", record["leader"]["pid"]))
            .unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with(state))
    });
}

/// A program that is stopped by somebody else, and continued by a signal to the frontend alone.
#[test]
fn a_stop_and_a_continue_from_outside() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut terminal = Terminal::new(&sandbox);
    terminal.type_in("cgleaf run --session o -- sleep 1000\r");
    await_program(&sandbox, "o", "sleep");
    let record = sandbox.record("o").expect("a record");
    let signal = |name: &str, who: &str| {
        let status = Command::new("kill")
            .args([name, &record[who]["pid"].to_string()])
            .status();
        assert!(status.expect("kill").success());
    };
    signal("-STOP", "leader");
    wait_until("the frontend stopped", || {
        frontend_state(&sandbox, "o") == Some('T')
    });
    signal("-CONT", "maker");
    await_state(&sandbox, "o", 'S');
    signal("-TERM", "maker");
    wait_until("the end", || sandbox.leaves().is_empty());
}

#[test]
fn the_window_size_is_the_terminals() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut terminal = Terminal::new(&sandbox);
    let (shown, _) = terminal.line("cgleaf run -- stty size");
    assert!(shown.contains("24 80"), "{shown}");
    let script = "trap \"stty size; echo cha\\\"\\\"nged\" WINCH; echo rea\"\"dy; while :; do sleep .05; done";
    terminal.type_in(&format!("cgleaf run --session w -- sh -c '{script}'\r"));
    terminal.expect("ready");
    let resized = Command::new("stty")
        .args(["-F", terminal.name(), "rows", "40", "cols", "100"])
        .status();
    assert!(resized.expect("stty").success());
    let shown = terminal.expect("changed");
    assert!(shown.contains("40 100"), "{shown}");
    terminal.type_in("\u{1c}");
    wait_until("the end", || sandbox.leaves().is_empty());
    assert_eq!(
        terminal.shown().matches("40 100").count(),
        1,
        "told once: {}",
        terminal.shown()
    );
}

/// The terminal's window is closed.
#[test]
fn a_terminal_that_goes_away_ends_the_session() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut terminal = Terminal::new(&sandbox);
    terminal.type_in("cgleaf run --session gone -- sh -c 'setsid sleep 1000 & sleep 1000'\r");
    wait_until("three members", || sandbox.members("gone").len() == 3);
    await_program(&sandbox, "gone", "sleep");
    terminal.hang_up();
    wait_until("the end", || sandbox.leaves().is_empty());
}

/// vim in tmux: keys, ctrl-Z and fg, the exit status, and the terminal's modes afterwards.
#[test]
fn an_editor_in_tmux_is_as_without_cgleaf() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for program in ["vim", "tmux"] {
        if !Path::new("/usr/bin").join(program).exists() {
            cgleaf_tests::scratch::skip(&format!("no {program}"));
            return;
        }
    }
    let with = edit(&sandbox, "cgleaf run -- ", "with");
    let without = edit(&sandbox, "", "without");
    assert_eq!(with, without);
}

/// A text is written in vim, which is stopped and continued meanwhile. The text, the status and the modes.
fn edit(sandbox: &Sandbox, prefix: &str, name: &str) -> (String, String) {
    let file = sandbox.runtime().join(format!("{name}.txt"));
    let told = sandbox.runtime().join(format!("{name}.told"));
    let socket = sandbox.runtime().join(format!("{name}.tmux"));
    let tmux = |words: &[&str]| {
        let mut command = sandbox.command("tmux");
        command
            .arg("-S")
            .arg(&socket)
            .args(["-f", "/dev/null"])
            .args(words);
        finish(command)
    };
    let screen = || tmux(&["capture-pane", "-p"]).stdout;
    let keys = |keys: &[&str]| {
        let mut words = vec!["send-keys"];
        words.extend(keys);
        tmux(&words).expect(0);
    };
    start_tmux(|| {
        let answer = tmux(&[
            "new-session",
            "-d",
            "-x",
            "80",
            "-y",
            "24",
            "PS1='$ ' exec bash --norc --noprofile",
        ]);
        let stderr = answer.stderr.clone();
        (answer, stderr)
    })
    .expect(0);
    wait_until("a prompt", || screen().contains('$'));
    let line = format!("{prefix}vim -u NONE -i NONE -n {}", file.display());
    keys(&[&line, "Enter"]);
    wait_until("the editor", || screen().contains('~'));
    keys(&["i", "hello", "Escape"]);
    wait_until("the text", || screen().contains("hello"));
    keys(&["C-z"]);
    wait_until("the shell", || screen().contains("Stopped"));
    keys(&["clear", "Enter"]);
    keys(&["fg", "Enter"]);
    wait_until("the editor again", || screen().contains('~'));
    keys(&["A", " world", "Escape"]);
    wait_until("the longer text", || screen().contains("hello world"));
    // It drops what was typed before it is dealt with.
    keys(&["C-c"]);
    wait_until("the answer to ctrl-C", || screen().contains(":qa"));
    keys(&[":wq", "Enter"]);
    wait_until("the text's end", || {
        fs::read_to_string(&file).is_ok_and(|text| text.ends_with("world\n"))
    });
    // `fg` has the program's status.
    let line = format!("echo \"$? $(stty -a | tr -d '\\n')\" > {}", told.display());
    keys(&[&line, "Enter"]);
    wait_until("its end", || {
        told.exists() && fs::read_to_string(&told).is_ok_and(|text| text.ends_with('\n'))
    });
    tmux(&["kill-server"]);
    (
        fs::read_to_string(&file).expect("the text"),
        fs::read_to_string(&told).expect("the status"),
    )
}
