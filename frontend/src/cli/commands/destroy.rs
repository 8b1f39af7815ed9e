//! `cgleaf destroy`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::super::args::{Destroy, Strays};
use super::super::context::Context;
use super::super::progress;
use crate::error::{Code, Error, Result};
use crate::ops::{self, DestroyOptions, Destroyed, KillWay, Reach, StrayPolicy};

/// How many sessions are ended at once: each waits for the kernel, not for the processor.
const AT_ONCE: usize = 16;
/// How many sessions a line of progress names.
const NAMED: usize = 3;

/// Ends sessions. One that cannot be ended keeps no other from it.
pub(super) fn run(context: &Context, arguments: &Destroy) -> Result<u8> {
    let options = DestroyOptions {
        grace: arguments.grace,
        timeout: arguments.timeout,
        if_exists: arguments.if_exists,
        strays: match arguments.strays {
            Strays::Name => StrayPolicy::Name,
            Strays::Kill => StrayPolicy::Kill,
            Strays::Ignore => StrayPolicy::Ignore,
        },
        kill: KillWay::Atomic,
    };
    let done = AtomicUsize::new(0);
    let what = || told(&arguments.sessions, done.load(Ordering::Relaxed));
    let answers = progress::during_counted(context.output, &what, || {
        all(&context.reach(), &arguments.sessions, &options, &done)
    });
    tell(context, &answers);
    let [answer] = &answers[..] else {
        return several(context, &arguments.sessions, &answers);
    };
    let done = answer.as_ref().map_err(Error::clone)?;
    context.output.answer(&done.to_json(), |_| Ok(()))?;
    Ok(0)
}

/// What a person reads meanwhile: names, as long as they fit a line.
fn told(sessions: &[String], done: usize) -> String {
    if sessions.len() <= NAMED {
        return format!("ending {}", sessions.join(", "));
    }
    format!("ending {} sessions, {done} done", sessions.len())
}

/// Every session's answer, in the order of the arguments. `done` counts them.
fn all(
    reach: &Reach,
    sessions: &[String],
    options: &DestroyOptions,
    done: &AtomicUsize,
) -> Vec<Result<Destroyed>> {
    if let [only] = sessions {
        return vec![ops::destroy(reach, only, options)];
    }
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(Vec::new());
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(session) = sessions.get(index) else {
                return;
            };
            let answer = ops::destroy(reach, session, options);
            done.fetch_add(1, Ordering::Relaxed);
            if let Ok(mut answers) = answers.lock() {
                answers.push((index, answer));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(sessions.len()) {
            scope.spawn(work);
        }
    });
    let mut answers = answers.into_inner().unwrap_or_default();
    answers.sort_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// What is worth a word: what is so of several sessions is said once, with all of them.
fn tell(context: &Context, answers: &[Result<Destroyed>]) {
    let mut notices: Vec<(&str, Vec<&str>)> = Vec::new();
    for done in answers.iter().flatten() {
        for notice in &done.notices {
            match notices.iter_mut().find(|(told, _)| told == notice) {
                Some((_, sessions)) => sessions.push(&done.session),
                None => notices.push((notice, vec![&done.session])),
            }
        }
    }
    for (notice, sessions) in notices {
        let word = if sessions.len() == 1 {
            "session"
        } else {
            "sessions"
        };
        context
            .output
            .notice(&format!("{word} {}: {notice}", sessions.join(", ")));
    }
    for done in answers.iter().flatten() {
        for (path, _) in &done.leftover {
            context.output.notice(&format!(
                "session {} is ended; an empty cgroup of it could not be removed: {path}",
                done.session
            ));
        }
    }
}

fn several(context: &Context, sessions: &[String], answers: &[Result<Destroyed>]) -> Result<u8> {
    let one = |(session, answer): (&String, &Result<Destroyed>)| match answer {
        Ok(done) => done.to_json(),
        Err(error) => json!({
            "session": session,
            "destroyed": false,
            "error": {"code": error.code().name(), "message": error.message(), "details": error.details()},
        }),
    };
    let list: Vec<Value> = sessions.iter().zip(answers).map(one).collect();
    let failures: Vec<&Error> = answers.iter().filter_map(|a| a.as_ref().err()).collect();
    // What may be alive weighs more than what was not there.
    let worst = failures
        .iter()
        .find(|error| matches!(error.code(), Code::Partial | Code::Timeout))
        .or(failures.first());
    match worst {
        None => {
            context
                .output
                .answer(&json!({"sessions": list}), |_| Ok(()))?;
            Ok(0)
        }
        Some(worst) => {
            let messages: Vec<&str> = failures.iter().map(|error| error.message()).collect();
            Err(Error::new(worst.code(), messages.join("\n")).with("sessions", list))
        }
    }
}
