//! The privileged half has few dependencies, and each of them was decided on. Whoever adds one changes this list, and says
//! in the commit why the helper cannot do without.

use std::collections::BTreeSet;
use std::process::Command;

/// What the helper is built of, build-time macros included.
const DEPENDENCIES: &[&str] = &[
    "anyhow",
    "bincode",
    "bitflags",
    "caps",
    "cfg-if",
    "cgleaf-helper",
    "cgleaf-shared",
    "enumflags2",
    "enumflags2_derive",
    "landlock",
    "libc",
    "memoffset",
    "nix",
    "proc-macro2",
    "quote",
    "sd-notify",
    "seccompiler",
    "serde",
    "serde_core",
    "serde_derive",
    "syn",
    "thiserror",
    "thiserror-impl",
    "unicode-ident",
    "unty",
];

#[test]
fn the_helper_is_built_of_nothing_else() {
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "--package",
            "cgleaf-helper",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("run cargo tree");
    assert!(
        tree.status.success(),
        "{}",
        String::from_utf8_lossy(&tree.stderr)
    );
    let text = String::from_utf8_lossy(&tree.stdout).into_owned();
    let found: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    let decided: BTreeSet<&str> = DEPENDENCIES.iter().copied().collect();
    assert_eq!(found, decided);
}
