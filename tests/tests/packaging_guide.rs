//! docs/INSTALL.md, followed to the letter on a system that never saw cgleaf.

use std::fs;
use std::path::Path;
use std::process::Command;

use cgleaf_tests::lab::GuestOptions;
use cgleaf_tests::packaging::{Installed, build, done, fetched, folder, have, own_folder, said};
use cgleaf_tests::pages::steps;
use cgleaf_tests::require;

#[test]
fn the_installation_page_does_what_it_says() {
    require!(Systemd, Cc, Downloads);
    if !have("dh") {
        return;
    }
    let out = own_folder("guide");
    if !["deb", "tarball"].iter().all(|what| build(what, "1", &out)) {
        return;
    }
    assert_has_its_pages(&out);
    let Some(root) = fetched("fetch-root", &["trixie"]) else {
        return;
    };
    let system = Installed::up(&GuestOptions::new().root(root).bind(out, "/packages"));
    let page = "docs/INSTALL.md";
    let text = fs::read_to_string(folder().join("..").join(page)).expect("read the page");
    let mut differences = Vec::new();
    let steps = steps(&text);
    assert!(!steps.is_empty());
    for step in steps {
        let script = format!("exec 2>&1; {}", step.command);
        let output = if step.as_root {
            let script = format!("export DEBIAN_FRONTEND=noninteractive; cd /packages; {script}");
            system.guest().root(["bash", "-c", &script]).output()
        } else {
            system.guest().user(["bash", "-c", &script]).output()
        };
        let output = output.expect("run a command in the guest");
        let printed = said(&output);
        differences.extend(step.differs(page, &printed, Path::new("/run/user/1000")));
        if !output.status.success() {
            differences.push(format!("{page}:{}: {}", step.line, output.status));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The README in the archive leads to pages that are there too.
fn assert_has_its_pages(out: &Path) {
    let readme = fs::read_to_string(folder().join("../README.md")).expect("read the README");
    let mut list = Command::new("sh");
    list.arg("-c")
        .arg("tar -tzf *-linux.tar.gz")
        .current_dir(out);
    let files = done(list);
    let missing: Vec<&str> = readme
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|link| link.starts_with("docs/") && !link.ends_with('/'))
        .filter(|link| !files.contains(&format!("/usr/share/doc/cgleaf/{link}\n")))
        .collect();
    assert!(
        readme.contains("docs/INSTALL.md") && missing.is_empty(),
        "{missing:?}"
    );
}
