//! Every input that a fuzzer found interesting, and every one that once broke something, replayed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cgleaf_tests::fuzzing::TARGETS;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

fn names_in(dir: &Path) -> BTreeSet<String> {
    fs::read_dir(dir)
        .unwrap_or_else(|cause| panic!("read {}: {cause}", dir.display()))
        .map(|entry| {
            entry
                .expect("an entry")
                .path()
                .file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        })
        .collect()
}

#[test]
fn the_corpus_breaks_nothing() {
    for (name, target) in TARGETS {
        let dir = fuzz().join("corpus").join(name);
        let files: Vec<_> = fs::read_dir(&dir)
            .unwrap_or_else(|cause| panic!("read {}: {cause}", dir.display()))
            .map(|entry| entry.expect("an entry").path())
            .collect();
        assert!(!files.is_empty(), "{name} has no corpus");
        for file in files {
            let input =
                fs::read(&file).unwrap_or_else(|cause| panic!("read {}: {cause}", file.display()));
            println!("{}", file.display());
            target(&input);
        }
    }
}

/// A target without a fuzzer, or a corpus without a target, would go unnoticed.
#[test]
fn every_target_has_its_fuzzer_and_its_corpus() {
    let known: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names_in(&fuzz().join("fuzz_targets")), known);
    assert_eq!(names_in(&fuzz().join("corpus")), known);
}
