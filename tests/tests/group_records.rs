//! Records of the group tier that somebody else has changed: what does not fit is set aside, nobody else is met, and what the
//! kernel says goes before what the record says.

use std::process::{Child, Command, Stdio};

use cgleaf_shared::process::{Pid, Proc, ProcessId, State};
use cgleaf_tests::frontend::{Sandbox, finish};
use cgleaf_tests::group::{lives, pid_of, state};
use cgleaf_tests::scratch::wait_until;
use serde_json::{Value, json};

type Change<'a> = Box<dyn Fn(&mut Value) + 'a>;

/// A process that leads a group and a POSIX session of its own, and has nothing to do with any session of ours.
struct Stranger(Child);

impl Stranger {
    fn new() -> Stranger {
        Stranger::with(&[])
    }

    fn with(environment: &[(&str, &str)]) -> Stranger {
        let mut command = Command::new("setsid");
        command.args(["sleep", "300"]).stdin(Stdio::null());
        command.envs(environment.iter().copied());
        let stranger = Stranger(command.spawn().expect("a stranger"));
        wait_until("its POSIX session", || {
            let proc = Proc::system().expect("/proc");
            let stat = proc.process(stranger.pid()).and_then(|it| it.stat());
            stat.is_ok_and(|stat| stat.session == Some(stranger.pid()) && stat.comm == b"sleep")
        });
        stranger
    }

    fn pid(&self) -> Pid {
        pid_of(&self.0)
    }

    fn id(&self) -> Value {
        serde_json::to_value(process(self.pid())).expect("JSON")
    }

    fn was_touched(&self) -> bool {
        !lives(self.pid()) || state(self.pid()) == Some(State::Stopped)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn process(pid: Pid) -> ProcessId {
    let proc = Proc::system().expect("/proc");
    let stat = proc.process(pid).and_then(|it| it.stat());
    stat.expect("a process").id
}

fn write(sandbox: &Sandbox, session: &str, record: &Value) {
    let path = sandbox.sessions().join(format!("{session}.json"));
    std::fs::write(path, record.to_string()).expect("write it back");
}

/// Has the group of a record name that process as its leader.
fn point_group(record: &mut Value, leader: &Value) {
    for field in ["pid", "pgid", "sid"] {
        record["group"][field] = leader["pid"].clone();
    }
    record["group"]["start"] = leader["start"].clone();
}

/// Has the leader of a record be one that had that process's number before it.
fn give_its_number_to(record: &mut Value, stranger: &Stranger) {
    let mut former = stranger.id();
    let start = former["start"].as_u64().expect("a start");
    former["start"] = (start - 1).into();
    point_group(record, &former);
    record["leader"] = former.clone();
    for field in ["pid", "start"] {
        record["maker"][field] = former[field].clone();
    }
}

/// What the commands that act on a session answer.
fn answers(sandbox: &Sandbox, session: &str) -> Vec<i32> {
    let commands = [
        &["destroy", session][..],
        &["destroy", "--grace", "100ms", "--strays", "kill", session],
        &["destroy", "--if-exists", session],
        &["signal", session, "TERM"],
        &["ps", session],
    ];
    let answer = |words: &&[&str]| sandbox.run(*words).code();
    commands.iter().map(answer).collect()
}

#[test]
fn one_that_contradicts_itself_is_damaged_and_leads_to_nobody() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let stranger = Stranger::new();
    let mut leader = sandbox.background_in_a_group("s", &["--tier", "group"], ["sleep", "300"]);
    let whole = sandbox.record("s").expect("a record");
    let other = stranger.id();
    let changes: Vec<(&str, Change<'_>)> = vec![
        ("group", Box::new(|record| point_group(record, &other))),
        (
            "leader",
            Box::new(|record| record["leader"] = other.clone()),
        ),
        (
            "group and leader",
            Box::new(|record| {
                point_group(record, &other);
                record["leader"] = other.clone();
            }),
        ),
        (
            "process group",
            Box::new(|record| {
                record["group"]["pgid"] = other["pid"].clone();
                record["group"]["sid"] = other["pid"].clone();
            }),
        ),
        (
            "start",
            Box::new(|record| {
                let start = record["group"]["start"].as_u64().expect("a start");
                record["group"]["start"] = (start + 1).into();
                record["leader"]["start"] = (start + 1).into();
            }),
        ),
        (
            "boot",
            Box::new(|record| record["group"]["boot_id"] = "0".repeat(32).into()),
        ),
        (
            "pid namespace",
            Box::new(|record| record["group"]["pid_ns"] = 1.into()),
        ),
        (
            "mark",
            Box::new(|record| record["group"]["mark"] = "x".into()),
        ),
        ("tier", Box::new(|record| record["tier"] = "cgroup".into())),
        (
            "no group",
            Box::new(|record| {
                record["phase"] = "destroyed".into();
                record.as_object_mut().expect("an object").remove("group");
            }),
        ),
        (
            "torn",
            Box::new(|record| record["group"] = json!({"pid": 0})),
        ),
    ];
    for (what, change) in changes {
        let mut record = whole.clone();
        change(&mut record);
        write(&sandbox, "s", &record);
        assert_eq!(sandbox.state("s"), "damaged", "{what}");
        assert_eq!(answers(&sandbox, "s")[..3], [8, 8, 8], "{what}");
        let kept = sandbox.run(["--json", "gc"]).json()["result"].clone();
        assert_eq!(kept["removed"], json!([]), "{what}: {kept}");
        assert_eq!(
            sandbox.record("s"),
            Some(record),
            "{what}: it was rewritten"
        );
        assert!(!stranger.was_touched(), "{what}");
        assert!(leader.lives(), "{what}");
    }
    write(&sandbox, "s", &whole);
    sandbox.run(["destroy", "s"]).expect(0);
    leader.wait();
}

/// All parts of these fit, and what the kernel shows of the processes does not.
#[test]
fn one_that_the_kernel_contradicts_is_damaged_and_leads_to_nobody() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let stranger = Stranger::new();
    let other = stranger.id();
    let mut leader = sandbox.background_in_a_group("e", &["--tier", "group"], ["sleep", "300"]);
    let started = ["m", "n"].map(|it| sandbox.started_in_a_group(it, &[], ["sleep", "300"]));
    let record = |session| sandbox.record(session).expect("a record");
    let monitor = |session| record(session)["group"]["monitor"].clone();
    let (younger, older) = (monitor("n"), monitor("m"));
    let set_monitor = |record: &mut Value, monitor: &Value| {
        record["group"]["monitor"] = monitor.clone();
        for field in ["pid", "start"] {
            record["maker"][field] = monitor[field].clone();
        }
    };
    let mut changes: Vec<(&str, &str, Change<'_>)> = vec![
        (
            "m",
            "a younger monitor",
            Box::new(|record| set_monitor(record, &younger)),
        ),
        (
            "n",
            "an older monitor",
            Box::new(|record| set_monitor(record, &older)),
        ),
        (
            "m",
            "no monitor",
            Box::new(|record| set_monitor(record, &other)),
        ),
    ];
    if record("e")["group"]["autogroup"].is_u64() {
        changes.push((
            "e",
            "another leader",
            Box::new(|record| {
                point_group(record, &other);
                record["leader"] = other.clone();
                for field in ["pid", "start"] {
                    record["maker"][field] = other[field].clone();
                }
            }),
        ));
    }
    for (session, what, change) in changes {
        let whole = record(session);
        let mut edited = whole.clone();
        change(&mut edited);
        write(&sandbox, session, &edited);
        assert_eq!(sandbox.state(session), "damaged", "{what}");
        let said = answers(&sandbox, session);
        assert!(
            said.iter().all(|code| [6, 7, 8].contains(code)),
            "{what}: {said:?}"
        );
        let kept = sandbox.run(["--json", "gc"]).json()["result"].clone();
        assert_eq!(kept["removed"], json!([]), "{what}: {kept}");
        assert_eq!(record(session), edited, "{what}: it was rewritten");
        assert!(!stranger.was_touched(), "{what}");
        write(&sandbox, session, &whole);
        assert_eq!(sandbox.state(session), "running", "{what}");
    }
    assert!(leader.lives() && started.iter().all(cgleaf_tests::session::Started::lives));
    sandbox.run(["destroy", "e", "m", "n"]).expect(0);
    leader.wait();
}

/// A record that says that its session is over does not end it.
#[test]
fn one_that_says_that_all_is_over_is_not_believed_while_it_runs() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for phase in ["ended", "destroyed"] {
        let exec = format!("e-{phase}");
        let start = format!("s-{phase}");
        let mut leader =
            sandbox.background_in_a_group(&exec, &["--tier", "group"], ["sleep", "300"]);
        let _started = sandbox.started_in_a_group(&start, &[], ["sleep", "300"]);
        for session in [&exec, &start] {
            let mut record = sandbox.record(session).expect("a record");
            let program = record["leader"]["pid"].as_i64().expect("a leader");
            let program = Pid::new(i32::try_from(program).expect("a pid")).expect("a pid");
            record["phase"] = phase.into();
            write(&sandbox, session, &record);
            assert_eq!(sandbox.state(session), "running", "{session}");
            let shown = sandbox.run(["--json", "ps", session]).json()["result"].clone();
            assert_eq!(shown["members"][0]["pid"], program.get(), "{shown}");
            sandbox
                .run(["wait", "--timeout", "10ms", session])
                .expect(11);
            let kept = sandbox.run(["--json", "gc"]).json()["result"].clone();
            assert_eq!(kept["kept"][0]["session"], session.as_str(), "{kept}");
            sandbox.run(["destroy", session]).expect(0);
            assert!(!lives(program), "{session}");
            assert_eq!(sandbox.state(session), "destroyed", "{session}");
            sandbox.run(["destroy", session]).expect(4);
        }
        leader.wait();
        sandbox.run(["gc"]).expect(0);
    }
    assert_eq!(finish(sandbox.cgleaf(["list", "--all"])).expect(0), "");
}

/// A number that others use now: what left the session is named all the same, and gc takes it when all of it is over.
#[test]
fn one_whose_number_is_anothers_is_refused_and_taken_when_all_is_over() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut leader = sandbox.background_in_a_group("s", &["--tier", "group"], ["true"]);
    leader.wait();
    let mut record = sandbox.record("s").expect("a record");
    let stranger = Stranger::new();
    give_its_number_to(&mut record, &stranger);
    write(&sandbox, "s", &record);
    let mark = record["mark"].as_str().expect("a mark");
    let mut stray = Stranger::with(&[("CGLEAF_MARK", mark)]);
    let refused = sandbox.run(["--json", "destroy", "s"]);
    refused.expect(7);
    let details = refused.json()["error"]["details"].clone();
    assert_eq!(details["strays"][0]["pid"], stray.pid().get(), "{details}");
    assert_eq!(details["killed"], 0, "{details}");
    assert!(!stranger.was_touched() && !stray.was_touched());
    let taken = || {
        let gc = sandbox.run(["--json", "gc"]).json()["result"].clone();
        gc["removed"] == json!(["s"])
    };
    assert!(!taken(), "its number is in use");
    drop(stranger);
    assert!(!taken(), "what left it lives");
    stray.0.kill().expect("SIGKILL");
    stray.0.wait().expect("its end");
    assert!(taken());
}

/// The kernel gives a number anew once it is no group's any more: the session has ended, and stays so.
#[test]
fn one_whose_number_was_given_anew_has_ended() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let stranger = Stranger::new();
    for (session, options, status) in [("a", &["--if-exists"][..], 0), ("b", &[], 7)] {
        let mut leader = sandbox.background_in_a_group(session, &["--tier", "group"], ["true"]);
        leader.wait();
        let mut record = sandbox.record(session).expect("a record");
        give_its_number_to(&mut record, &stranger);
        write(&sandbox, session, &record);
        assert_eq!(sandbox.state(session), "ended");
        let words = [&["destroy"], options, &[session]].concat();
        sandbox.run(words).expect(status);
        assert_eq!(sandbox.state(session), "destroyed");
        sandbox.run(["wait", session]).expect(0);
        sandbox.run(["destroy", session]).expect(4);
        assert!(!stranger.was_touched());
    }
}

/// What lists them all together says of each what a look at it alone says.
#[test]
fn a_list_tells_them_apart() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let group = ["--tier", "group"];
    let sleep = ["sleep", "300"];
    let mut all = vec![
        (
            "ended",
            sandbox.background_in_a_group("ended", &group, ["true"]),
        ),
        (
            "damaged",
            sandbox.background_in_a_group("damaged", &group, sleep),
        ),
        (
            "destroyed",
            sandbox.background_in_a_group("destroyed", &group, sleep),
        ),
        (
            "running",
            sandbox.background_in_a_group("running", &group, sleep),
        ),
    ];
    // Its leader has gone, and its group has not.
    let script = "sleep 300 & exit 0";
    let mut left = sandbox.background_in_a_group("left", &group, ["sh", "-c", script]);
    left.wait();
    all[0].1.wait();
    sandbox.run(["destroy", "destroyed"]).expect(0);
    let mut record = sandbox.record("damaged").expect("a record");
    record["group"]["mark"] = "x".into();
    write(&sandbox, "damaged", &record);
    let listed = sandbox.run(["--json", "list", "--all"]).json()["result"]["sessions"].clone();
    let states: std::collections::BTreeMap<&str, &str> = listed
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| {
            (
                one["session"].as_str().expect("an id"),
                one["state"].as_str().expect("a state"),
            )
        })
        .collect();
    for (session, _) in &all {
        assert_eq!(states.get(session), Some(session), "{listed}");
        assert_eq!(sandbox.state(session), *session);
    }
    assert_eq!(states["left"], "running", "{listed}");
    sandbox.run(["destroy", "left", "running"]).expect(0);
}

/// Its numbers are others' now: nobody is shown by them, as nobody is signalled by them.
#[test]
fn one_of_another_boot_shows_nobody() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let leader = sandbox.background_in_a_group("s", &["--tier", "group"], ["sleep", "300"]);
    let mut record = sandbox.record("s").expect("a record");
    for part in ["group", "maker"] {
        record[part]["boot_id"] = "0".repeat(32).into();
    }
    write(&sandbox, "s", &record);
    assert_eq!(answers(&sandbox, "s"), [7; 5]);
    drop(leader);
}
