//! The wall clock is set forward and back: nothing that is running, frozen, held, kept for a while or waited for changes. In a
//! machine of its own, under a stock kernel: a clock is nobody's alone.

use std::fs;
use std::path::PathBuf;

use cgleaf_tests::lab::{script, static_programs_dir};
use cgleaf_tests::require;
use cgleaf_tests::scratch::skip;

const SCRIPT: &str = r#"#!/bin/sh
export XDG_RUNTIME_DIR=/run/me CGLEAF_SCOPE_DIR=/sys/fs/cgroup/scope
mkdir -m 700 $XDG_RUNTIME_DIR
records=$XDG_RUNTIME_DIR/cgleaf/sessions
failed() { echo "CASE failed $*"; exit 1; }
expect() { status=$1; shift; said=$("$@" 2>&1); got=$?; [ $got = $status ] || failed "$* gave $got: $said"; }

for session in runs frozen held; do expect 0 cgleaf start --session $session -- sleep 100000; done
expect 0 cgleaf freeze frozen
cgleaf freeze --for 10h held &
cgleaf run --session leased --die-with-frontend -- sleep 100000 &
frontend=$!
until cgleaf show leased 2>/dev/null | grep -q running; do sleep 1; done
until cgleaf show held | grep -q frozen; do sleep 1; done
expect 0 cgleaf destroy --if-exists young
# As somebody leaves it who is just writing a record: the time since the boot is in its name.
up=$(cut -d. -f1 /proc/uptime)
writing=$records/.new-${up}000000000-00ff
: >$writing
chmod 600 $writing

# All but what is told in the wall clock's terms.
look() { cgleaf --json list --all | sed -e 's/"timestamp":"[^"]*"//' -e 's/"created":"[^"]*"//g'; }
before=$(look)
[ "$(echo "$before" | grep -o '"state":"[a-z]*"' | sort | tr '\n' ' ')" = '"state":"frozen" "state":"frozen" "state":"running" "state":"running" ' ] ||
    failed "at first: $before"
echo "CASE begun"
for clock in '2035-06-01 12:00' '1999-06-01 12:00' '2026-06-01 12:00'; do
    date -s "$clock" >/dev/null || failed "the clock cannot be set"
    [ "$(date +%Y)" = "${clock%%-*}" ] || failed "the clock was not set"
    after=$(look)
    [ "$after" = "$before" ] || failed "$clock: $before became $after"
    gc=$(cgleaf --json gc)
    echo "$gc" | grep -q '"names":\[\],"removed":\[\],"temporary_files":0,"tombstones":\[\]' || failed "$clock: $gc"
    [ -e $writing ] && [ -e $records/young.tomb ] || failed "$clock: something young is gone"
    expect 11 cgleaf wait runs --timeout 300ms
    expect 124 cgleaf run --timeout 300ms -- sleep 100000
    expect 0 cgleaf exec -- true
    expect 0 cgleaf gc
    # The sessions that have ended are gone again, the others are as before.
    [ "$(look)" = "$before" ] || failed "$clock: after a run: $before became $(look)"
done
echo "CASE set"
expect 0 cgleaf thaw frozen
kill -9 $frontend
expect 0 cgleaf wait leased --timeout 1m
expect 0 cgleaf destroy runs frozen held
ls -d $CGLEAF_SCOPE_DIR/*.leaf 2>/dev/null && failed "a leaf is left"
echo "CASE done"
"#;

/// A stock kernel with cgroup.kill; `None` where none can be had.
fn kernel() -> Option<PathBuf> {
    let output = script("fetch-kernels").output().expect("run fetch-kernels");
    if !output.status.success() {
        skip(&format!(
            "no kernels: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
        return None;
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find(|words| words[0] == "bookworm")
        .map(|words| PathBuf::from(words[2]))
}

#[test]
fn a_clock_that_is_set_changes_nothing() {
    require!(Downloads);
    let Some(kernel) = kernel() else { return };
    let Some(programs) = static_programs_dir() else {
        return;
    };
    let directory = tempfile::tempdir().expect("make a folder");
    let (text, image) = (
        directory.path().join("script"),
        directory.path().join("image.gz"),
    );
    fs::write(&text, SCRIPT).expect("write the script");
    let made = script("make-initramfs")
        .args([&image, &text])
        .args(["cgleaf", "cgleaf-helper"].map(|name| programs.join(name)))
        .output()
        .expect("run make-initramfs");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let booted = script("boot-kernel")
        .args([&kernel, &image])
        .output()
        .expect("run boot-kernel");
    let said = String::from_utf8_lossy(&booted.stdout);
    assert!(said.contains("CASE done"), "{}: {said}", booted.status);
}
