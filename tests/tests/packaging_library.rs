//! The client library as somebody else's program uses it: built outside of this workspace, without the command line.

use std::fs;
use std::path::Path;
use std::process::Command;

use cgleaf_tests::frontend::programs;
use cgleaf_tests::packaging::folder;
use cgleaf_tests::require;

const MANIFEST: &str = r#"
[package]
name = "keep-and-end"
version = "0.0.0"
edition = "2024"

[dependencies]
cgleaf = { path = "@FRONTEND@", default-features = false }

# Of no workspace.
[workspace]
"#;

#[test]
fn a_program_of_its_own_keeps_and_ends_a_session() {
    require!(Cgroup2);
    let tree = folder().parent().expect("the tree").to_path_buf();
    let own = tempfile::tempdir().expect("make a folder");
    let root = own.path();
    let frontend = tree.join("frontend");
    let manifest = MANIFEST.replace("@FRONTEND@", &frontend.display().to_string());
    fs::write(root.join("Cargo.toml"), manifest).expect("write the manifest");
    // The same versions as here: nothing else may be asked of the network.
    fs::copy(tree.join("Cargo.lock"), root.join("Cargo.lock")).expect("copy the lock file");
    fs::create_dir(root.join("src")).expect("make src");
    fs::copy(
        frontend.join("examples/keep_and_end.rs"),
        root.join("src/main.rs"),
    )
    .expect("copy the example");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline"])
        .current_dir(root)
        .env("CARGO_TARGET_DIR", root.join("target"))
        .output()
        .expect("start cargo");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );

    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--prefix", "none", "--edges", "normal"])
        .current_dir(root)
        .output()
        .expect("start cargo");
    let tree = String::from_utf8_lossy(&tree.stdout);
    assert!(tree.contains("cgleaf v"), "{tree}");
    assert!(!tree.lines().any(|line| line.starts_with("clap")), "{tree}");

    runs(root);
}

/// With a helper beside it, as a package would have it.
fn runs(root: &Path) {
    let programs_dir = root.join("bin");
    fs::create_dir(&programs_dir).expect("make bin");
    fs::copy(
        root.join("target/debug/keep-and-end"),
        programs_dir.join("keep-and-end"),
    )
    .expect("copy the program");
    fs::copy(
        programs().join("cgleaf-helper"),
        programs_dir.join("cgleaf-helper"),
    )
    .expect("copy the helper");
    let runtime = root.join("runtime");
    fs::create_dir(&runtime).expect("make a runtime directory");
    let ran = Command::new(programs_dir.join("keep-and-end"))
        .env("XDG_RUNTIME_DIR", &runtime)
        .env_remove("CGLEAF_SOCKET")
        .output()
        .expect("run the example");
    // A helper that is left without sessions is told to end: the folder goes with the test.
    let stopped = Command::new(programs().join("cgleaf"))
        .args(["helper", "stop"])
        .env("XDG_RUNTIME_DIR", &runtime)
        .output()
        .expect("run cgleaf helper stop");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(
        ran.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    assert!(
        said.contains("now frozen") && said.ends_with("all of them are gone\n"),
        "{said}"
    );
    assert!(
        stopped.status.success(),
        "{}",
        String::from_utf8_lossy(&stopped.stderr)
    );
}
