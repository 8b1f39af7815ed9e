//! Verifies one attestation where it is started: in another cgroup namespace, over another mount, without /proc.
//!
//! `verify-probe ATTESTATION-FILE [LEFT-OUT-GUARD]` prints `proven ID`, `gone`, `foreign WHY` or `unreadable WHY`.

use std::process::ExitCode;

use cgleaf_shared::attestation::{Attestation, Guard, Verdict, verify, verify_without};
use cgleaf_shared::cgroup::CgroupRoot;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().expect("an attestation's file");
    let left_out = arguments.next();
    let text = std::fs::read(&file).expect("read the attestation");
    let attestation: Attestation = serde_json::from_slice(&text).expect("parse the attestation");
    let root = match CgroupRoot::open() {
        Ok(root) => root,
        Err(error) => {
            println!("unreadable {error}");
            return ExitCode::SUCCESS;
        }
    };
    let guard = |name: String| {
        Guard::ALL
            .into_iter()
            .find(|guard| format!("{guard:?}").eq_ignore_ascii_case(&name))
            .expect("a guard's name")
    };
    let verdict = match left_out.map(guard) {
        None => verify(&attestation, &root),
        Some(guard) => verify_without(guard, &attestation, &root),
    };
    match verdict {
        Verdict::Proven(dir) => println!("proven {}", dir.id().expect("the proven leaf's id")),
        Verdict::Gone => println!("gone"),
        Verdict::Foreign(why) => println!("foreign {why}"),
        Verdict::Unreadable(why) => println!("unreadable {why}"),
    }
    ExitCode::SUCCESS
}
