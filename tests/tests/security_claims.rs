//! docs/SECURITY.md names the test behind each claim: every one that it names is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// `FILE.rs: test`, and further tests of that file as plain code spans behind it.
fn named(page: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut file = None;
    for line in page.lines() {
        for span in line.split('`').skip(1).step_by(2) {
            if let Some((name, test)) = span.split_once(": ") {
                file = Some(name.to_owned());
                found.push((name.to_owned(), test.to_owned()));
            } else if let Some(name) = &file
                && span.contains('_')
                && span
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            {
                found.push((name.clone(), span.to_owned()));
            }
        }
        if line.is_empty() {
            file = None;
        }
    }
    found
}

#[test]
fn every_test_that_is_named_exists() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let page = fs::read_to_string(tests.join("../../docs/SECURITY.md")).expect("read the page");
    let named: Vec<_> = named(&page)
        .into_iter()
        .filter(|(file, _)| file != "tests/tests/FILE.rs")
        .collect();
    assert!(named.len() > 40, "the page is read: {}", named.len());
    let mut missing = BTreeSet::new();
    for (file, test) in named {
        let source = fs::read_to_string(tests.join(&file)).unwrap_or_default();
        if !source.contains(&format!("fn {test}(")) {
            missing.insert(format!("{file}: {test}"));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
