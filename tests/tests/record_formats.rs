//! A record of every format and shape that was ever written is read, shown, acted on and cleared. The files are in
//! `tests/records`: a change of what is written adds one, and changes none.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use cgleaf::records::FORMAT;
use cgleaf_tests::frontend::Sandbox;
use serde_json::{Value, json};

/// The files, by name.
fn fixtures() -> Vec<(String, Value)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("records");
    let mut found: Vec<(String, Value)> = fs::read_dir(&folder)
        .expect("list the records")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_stem().expect("a name").to_string_lossy();
            let text = fs::read(&path).expect("read a record");
            (
                name.into_owned(),
                serde_json::from_slice(&text).expect("JSON"),
            )
        })
        .collect();
    found.sort_by(|(left, _), (right, _)| left.cmp(right));
    found
}

/// The paths of all fields, such as `attestation.leaf_id`.
fn fields(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| {
            let path = format!("{at}.{name}");
            found.insert(path.clone());
            fields(value, &path, found);
        }),
        Value::Array(values) => values.iter().for_each(|value| fields(value, at, found)),
        _ => {}
    }
}

/// Puts what is true now into the fields that the old record has, and no field more.
fn filled(old: &Value, now: &Value) -> Value {
    match (old, now) {
        (Value::Object(old), Value::Object(now)) => old
            .iter()
            .map(|(name, value)| {
                let kept = ["format", "phase", "strays", "exit", "log", "helper_build"];
                let value = match now.get(name) {
                    Some(now) if !kept.contains(&name.as_str()) => filled(value, now),
                    _ => value.clone(),
                };
                (name.clone(), value)
            })
            .collect::<serde_json::Map<_, _>>()
            .into(),
        (_, now) => now.clone(),
    }
}

#[test]
fn there_is_one_of_every_format_and_of_every_field() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let all = fixtures();
    for format in 1..=FORMAT {
        assert!(
            all.iter().any(|(_, record)| record["format"] == format),
            "no record of format {format} in tests/records"
        );
    }
    let mut known = BTreeSet::new();
    let latest = all.iter().filter(|(_, record)| record["format"] == FORMAT);
    latest.for_each(|(_, record)| fields(record, "", &mut known));
    let mut written = BTreeSet::new();
    for options in [
        &["exec", "--session", "c", "--name", "n"][..],
        &["start", "--session", "d"],
        &["exec", "--session", "g", "--tier", "group"],
        &["start", "--session", "h", "--tier", "group"],
    ] {
        sandbox.run(options.iter().chain(&["--", "true"])).expect(0);
        let record = sandbox.record(options[2]).expect("a record");
        fields(&record, "", &mut written);
    }
    let new: Vec<&String> = written.difference(&known).collect();
    assert!(
        new.is_empty(),
        "written and in no record of tests/records: {new:?}; add one"
    );
}

#[test]
fn every_one_is_shown_ended_and_cleared() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    for (name, old) in fixtures() {
        let tier = old["tier"].as_str().expect("a tier").to_owned();
        let options = ["--tier", tier.as_str()];
        let mut leader = if tier == "group" {
            // Its own group's leader, as a host's: only such a group is ever signalled.
            sandbox.background_in_a_group("s", &options, ["sleep", "1000"])
        } else {
            sandbox.background_with("s", &options, ["sleep", "1000"])
        };
        let now = sandbox.record("s").expect("a record");
        let mut record = filled(&old, &now);
        record["written_by_a_later_one"] = json!({"x": [1]});
        let file = sandbox.sessions().join("s.json");
        fs::write(&file, record.to_string()).expect("write the record");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("chmod");

        let shown = sandbox.run(["--json", "show", "s"]);
        let state = shown.json()["result"]["state"].clone();
        let expected = if old["phase"] == "destroying" {
            "destroying"
        } else {
            "running"
        };
        assert_eq!(state, expected, "{name}: {shown:?}");
        let kept = sandbox.run(["--json", "gc"]).json()["result"].clone();
        assert_eq!(kept["removed"], json!([]), "{name}: {kept}");
        let destroyed = sandbox.run(["destroy", "s"]);
        assert_eq!(destroyed.code(), 0, "{name}: {destroyed:?}");
        leader.wait();
        let rewritten = sandbox.record("s").expect("a record");
        assert_eq!(rewritten["phase"], "destroyed", "{name}: {rewritten}");
        assert_eq!(
            rewritten["written_by_a_later_one"],
            json!({"x": [1]}),
            "{name}: unknown fields survive a rewrite"
        );
        let done = sandbox.run(["--json", "gc"]).json()["result"].clone();
        assert_eq!(done["removed"], json!(["s"]), "{name}: {done}");
    }
}

/// The same files as they are: of another machine, and of a boot that is over.
#[test]
fn as_they_are_they_are_anothers_or_an_earlier_boots() {
    let Some(sandbox) = Sandbox::new() else {
        return;
    };
    let mut first = sandbox.background("first", ["sleep", "1000"]);
    let machine = sandbox.record("first").expect("a record")["machine_id"].clone();
    for (name, mut record) in fixtures() {
        let file = sandbox.sessions().join("s.json");
        let write = |record: &Value| {
            fs::write(&file, record.to_string()).expect("write the record");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("chmod");
        };
        record["machine_id"] = machine.clone();
        write(&record);
        sandbox.run(["destroy", "s"]).expect(7);
        let text = fs::read_to_string(&file).expect("read the record");
        assert_eq!(text, record.to_string(), "{name}: nothing was written");
        record["machine_id"] = json!("ffffffffffffffffffffffffffffffff");
        write(&record);
        assert_eq!(sandbox.state("s"), "damaged", "{name}");
        sandbox.run(["destroy", "s"]).expect(8);
        let text = fs::read_to_string(&file).expect("read the record");
        assert_eq!(text, record.to_string(), "{name}: it is not rewritten");
        record["machine_id"] = machine.clone();
        write(&record);
        let done = sandbox.run(["--json", "gc"]).json()["result"].clone();
        assert_eq!(done["removed"], json!(["s"]), "{name}: {done}");
        let _ = fs::remove_file(sandbox.sessions().join("s.tomb"));
    }
    sandbox.run(["destroy", "first"]).expect(0);
    first.wait();
}
