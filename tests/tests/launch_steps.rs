//! Creating a session against destroying it: every order of their steps, by the real code (DESIGN 4, "none starts after a
//! destroy").

use std::fs;
use std::process::Command;

use cgleaf_tests::frontend::{Sandbox, instrumented_programs};
use cgleaf_tests::scratch::wait_until;
use cgleaf_tests::steps::{Orders, Stage};

const CREATE: usize = 0;
const DESTROY: usize = 1;

/// What came of all orders.
#[derive(Debug, Default)]
struct Seen {
    orders: usize,
    /// Those in which the program was executed at all.
    executed: usize,
    /// Those in which destroy answered 0.
    destroyed: usize,
    /// Those in which a program ran after destroy had answered 0.
    broken: Vec<String>,
}

fn explore(create: &str, destroy: &[&str], without: Option<&str>) -> Option<Seen> {
    let sandbox = Sandbox::with(instrumented_programs())?;
    sandbox.run(["run", "--", "true"]).expect(0);
    let mut seen = Seen::default();
    let mut orders = Orders::default();
    while orders.next_order() {
        let session = format!("s{}", seen.orders);
        seen.orders += 1;
        one_order(
            &sandbox,
            &session,
            create,
            destroy,
            without,
            &mut orders,
            &mut seen,
        );
        let leaf = sandbox.leaf(&session);
        if leaf.exists() {
            // A session that nobody destroyed, or one that should have been and was not.
            let _ = sandbox.run(["destroy", "--if-exists", &session]);
            wait_until("the leaf's end", || {
                !leaf.exists() || fs::remove_dir(&leaf).is_ok()
            });
        }
    }
    Some(seen)
}

fn one_order(
    sandbox: &Sandbox,
    session: &str,
    create: &str,
    destroy: &[&str],
    without: Option<&str>,
    orders: &mut Orders,
    seen: &mut Seen,
) {
    let witness = sandbox.runtime().join(format!("{session}.ran"));
    let script = format!("echo >{}; exec sleep 1000", witness.display());
    let mut creates = sandbox.cgleaf([
        create,
        "--quiet",
        "--session",
        session,
        "--",
        "sh",
        "-c",
        &script,
    ]);
    if let Some(guard) = without {
        creates.env("CGLEAF_WITHOUT", guard);
    }
    let mut destroys = sandbox.cgleaf(destroy);
    destroys.arg(session);
    for command in [&mut creates, &mut destroys] {
        silence(command);
    }
    let events = sandbox.leaf(session).join("cgroup.events");
    let is_frozen = || fs::read_to_string(&events).is_ok_and(|text| text.contains("frozen 1"));
    // Only what is in the leaf is held.
    let is_held = |actor: usize| actor == CREATE && is_frozen();
    let socket = sandbox.runtime().join("steps");
    let mut stage = Stage::new(&socket, vec![creates, destroys], &is_held)
        // The leaf is there, as it is before, and the record says no more than before.
        .passing(&["create:born"]);
    let mut ran_before_the_answer = None;
    loop {
        stage.look();
        // `run` stays until its program ends, and a program of exec is that process itself.
        let ready = stage.ready();
        if stage.ended(DESTROY).is_some() && ran_before_the_answer.is_none() {
            ran_before_the_answer = Some(witness.exists());
        }
        if ready.is_empty() {
            break;
        }
        let actor = ready[orders.choose(ready.len())];
        if stage.at(actor) == Some("create:exec") {
            stage.go(actor);
            wait_until("the program, or its end", || {
                stage.look();
                witness.exists() || stage.ended(CREATE).is_some() || is_frozen()
            });
        } else {
            stage.step(actor);
        }
    }
    wait_until("destroy's answer", || {
        stage.look();
        stage.ended(DESTROY).is_some()
    });
    let ran_before = ran_before_the_answer.unwrap_or_else(|| witness.exists());
    seen.executed += usize::from(witness.exists());
    // It was told that there may be nothing: whatever the order, that is no failure.
    assert!(
        stage.ended(DESTROY) == Some(0) || !destroy.contains(&"--if-exists"),
        "{:?}: {:?}",
        stage.taken(),
        stage.ended(DESTROY)
    );
    if stage.ended(DESTROY) != Some(0) {
        return;
    }
    seen.destroyed += 1;
    let runs_still = sandbox.members(session).iter().any(|pid| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.starts_with(b"sleep") || line.starts_with(b"sh"))
    });
    if runs_still || (witness.exists() && !ran_before) {
        let order: Vec<String> = stage
            .taken()
            .iter()
            .map(|(actor, from)| format!("{}{from}", if *actor == CREATE { "" } else { "  " }))
            .collect();
        seen.broken.push(order.join(" → "));
    }
}

fn silence(command: &mut Command) {
    command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
}

fn check(create: &str, destroy: &[&str]) {
    let Some(seen) = explore(create, destroy, None) else {
        return;
    };
    println!(
        "{create} against {destroy:?}: {} orders, {} executed, {} destroyed",
        seen.orders, seen.executed, seen.destroyed
    );
    assert_eq!(seen.broken, Vec::<String>::new());
    assert!(seen.orders > 20, "{seen:?}");
    assert!(seen.executed > 0 && seen.executed < seen.orders, "{seen:?}");
    assert!(seen.destroyed > 0, "{seen:?}");
}

#[test]
fn no_order_of_exec_and_destroy_lets_a_program_run_afterwards() {
    check("exec", &["destroy", "--if-exists"]);
}

#[test]
fn no_order_of_exec_and_a_plain_destroy_does() {
    check("exec", &["destroy"]);
}

#[test]
fn no_order_of_run_and_destroy_does() {
    check("run", &["destroy", "--if-exists"]);
}

/// What the look for the tombstone is there for.
#[test]
fn without_the_look_for_the_tombstone_some_do() {
    let Some(seen) = explore("exec", &["destroy", "--if-exists"], Some("look-for-tomb")) else {
        return;
    };
    println!(
        "without the look for the tombstone a program runs after destroy in {} of {} orders:",
        seen.broken.len(),
        seen.orders
    );
    for order in &seen.broken {
        println!("  {order}");
    }
    assert!(!seen.broken.is_empty(), "{seen:?}");
}
