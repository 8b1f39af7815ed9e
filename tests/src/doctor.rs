//! What `cgleaf doctor` says, beside what `run` then does.

use serde_json::Value;

use crate::frontend::Answer;

/// What doctor says, after it has ended with 0 or 12 as its tier demands.
///
/// # Panics
/// Where it has ended with anything else.
#[must_use]
pub fn result(doctor: &Answer) -> Value {
    let result = doctor.json()["result"].clone();
    let code = if result["tier"] == "cgroup" { 0 } else { 12 };
    assert_eq!(doctor.code(), code, "{doctor:?}");
    result
}

/// The tier that a run was given, as it tells on stderr; null where nothing was started.
///
/// # Panics
/// Where the run ended in another way.
#[must_use]
pub fn tier_of(run: &Answer) -> Value {
    match run.code() {
        0 if run.stderr.contains("no leaf can be had here") => "group".into(),
        0 => "cgroup".into(),
        125 => Value::Null,
        _ => panic!("run answers {run:?}"),
    }
}

/// A part of what doctor says that is text; empty where it is none.
#[must_use]
pub fn text<'a>(result: &'a Value, name: &str) -> &'a str {
    result[name].as_str().unwrap_or_default()
}
