//! The Debian packages, installed by apt on systems that never saw cgleaf: what starts, what goes on, what stays.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use cgleaf_tests::frontend::programs;
use cgleaf_tests::lab::{GuestOptions, User};
use cgleaf_tests::packaging::{Installed, STATUS, debs, done, fetched, folder, have, said};
use cgleaf_tests::require;
use cgleaf_tests::scratch::wait_until;

const SESSIONS: usize = 50;
const SLEEPER: &str = "sleep 3600";
const BOTH: &str = "./cgleaf-helper_*-1_*.deb ./cgleaf_*-1_*.deb";
const HIGHER: &str = "./cgleaf-helper_*-2_*.deb ./cgleaf_*-2_*.deb";

/// All the sessions' ids, as words.
fn all() -> String {
    (1..=SESSIONS).map(|number| format!("s{number} ")).collect()
}

fn assert_all(system: &Installed, state: &str, when: &str) {
    let sessions = system.sessions();
    let found = sessions.iter().filter(|(_, is)| is == state).count();
    assert_eq!(found, SESSIONS, "{when}: {sessions:?}");
    assert_eq!(system.running(SLEEPER), SESSIONS, "{when}");
}

/// Every one of them, and not only to be seen: it stands still and goes on when it is told to.
fn assert_controlled(system: &Installed, when: &str) {
    assert_all(system, "running", when);
    system.user(&format!(
        "for s in {}; do cgleaf freeze $s || exit; done",
        all()
    ));
    assert_all(system, "frozen", when);
    system.user(&format!(
        "for s in {}; do cgleaf thaw $s || exit; done",
        all()
    ));
    assert_all(system, "running", when);
}

/// What dpkg(1) knows of, in which version and state.
fn installed(system: &Installed) -> String {
    let format = r"${Package} ${Version} ${db:Status-Status}\n";
    system.root(&format!(
        "dpkg-query --show --showformat '{format}' 'cgleaf*' 2>/dev/null || true"
    ))
}

fn assert_installed(system: &Installed, revision: u32) {
    let version = format!("{}-{revision}", env!("CARGO_PKG_VERSION"));
    let both = ["cgleaf", "cgleaf-helper"].map(|name| format!("{name} {version} installed\n"));
    assert_eq!(installed(system), both.concat());
}

fn installs_and_activates(system: &Installed) {
    system.apt(&format!("install {BOTH}"));
    assert_installed(system, 1);
    assert_eq!(
        system.unit("ActiveState"),
        "inactive",
        "nobody has asked for a helper yet"
    );
    system.user("systemctl --user is-active cgleaf-helper.socket");
    system.user("cgleaf run -- true");
    system.helpers_pid();
    let status = done(system.guest().user(STATUS));
    println!("{status}");
    // Type=notify: it is active since it said READY=1.
    for part in [
        "Active: active (running)",
        "Status: \"Serving",
        "cgleaf-helper.socket",
    ] {
        assert!(status.contains(part), "{part:?} is not in {status}");
    }
    assert_eq!(system.unit("Type"), "notify");
}

/// From the first `cgleaf run` to the purge.
fn lives_as_a_service(system: &Installed) {
    let before = system.traces();
    installs_and_activates(system);
    system.user(&format!(
        "for s in {}; do cgleaf start --quiet --session $s -- {SLEEPER} || exit; done",
        all()
    ));
    wait_until("the status line has the number", || {
        done(system.guest().user(STATUS)).contains(&format!("Status: \"Serving {SESSIONS} "))
    });
    let status = done(system.guest().user(STATUS));
    println!("{}", status.lines().take(9).collect::<Vec<_>>().join("\n"));

    let pid = system.helpers_pid();
    done(system.guest().enter(["kill", "-KILL", &pid]));
    wait_until("systemd starts the helper anew", || {
        system.helpers_pid() != pid
    });
    assert_controlled(system, "after kill -9 of the helper");

    let pid = system.helpers_pid();
    system.apt(&format!("install {HIGHER}"));
    assert_installed(system, 2);
    wait_until("the upgrade starts the helper anew", || {
        system.helpers_pid() != pid
    });
    assert_controlled(system, "after the upgrade");
    goes_without_a_trace(system, &before);
}

/// Half of the sessions end now, and the others have to be left alone by the removal.
fn goes_without_a_trace(system: &Installed, before: &str) {
    system.user("cgleaf destroy $(seq -f s%g 1 25)");
    let left = SESSIONS / 2;
    assert_eq!(system.running(SLEEPER), left);
    system.apt("remove cgleaf cgleaf-helper");
    assert_eq!(system.running(SLEEPER), left, "no removal ends a session");
    system.apt("purge cgleaf cgleaf-helper");
    assert_eq!(system.traces(), before, "a purge leaves nothing");
    assert_eq!(system.running(SLEEPER), left, "nor does a purge");
    let units = "systemctl --user --all --no-legend list-unit-files 'cgleaf*' || true";
    assert_eq!(system.user(units).trim(), "");
    assert_eq!(installed(system), "", "nothing is left to be purged");
}

#[test]
fn a_user_service_lives_from_the_first_run_to_the_purge_on_systemd_252() {
    require!(Systemd, Cc, Downloads);
    if let Some(system) = Installed::debian("bookworm") {
        lives_as_a_service(&system);
    }
}

#[test]
fn a_user_service_lives_from_the_first_run_to_the_purge_on_systemd_257() {
    require!(Systemd, Cc, Downloads);
    if let Some(system) = Installed::debian("trixie") {
        lives_as_a_service(&system);
    }
}

/// A helper that the command started by itself, in a scope, has a session when the package brings the service.
fn keeps_what_was_there_before(system: &Installed) {
    system.apt("install --no-install-recommends ./cgleaf_*-1_*.deb");
    system.user("cgleaf start --session before -- sleep 3600");
    system.apt("install ./cgleaf-helper_*-1_*.deb");
    system.user("cgleaf start --session after -- sleep 3600");
    assert_eq!(system.unit("ActiveState"), "active");
    let helpers = system.user("cgleaf helper status");
    println!("{helpers}");
    for mode in ["scope", "user-service"] {
        assert!(helpers.contains(mode), "{mode} is not in {helpers}");
    }
    let states = |state: &str| ["after", "before"].map(|id| (id.to_owned(), state.to_owned()));
    assert_eq!(system.sessions(), states("running"));
    system.user("cgleaf freeze before && cgleaf freeze after");
    assert_eq!(system.sessions(), states("frozen"));
    system.user("cgleaf thaw before && cgleaf ps before && cgleaf destroy before");
    comes_back(system);
    assert_eq!(system.sessions(), []);
    assert_eq!(system.running(SLEEPER), 0);
}

/// What the service keeps is its own: without it nobody has that leaf, and an error says how it is had again.
fn comes_back(system: &Installed) {
    system.apt("remove cgleaf-helper");
    let refused = system
        .guest()
        .user(["cgleaf", "destroy", "after"])
        .output()
        .expect("run cgleaf");
    assert_eq!(refused.status.code(), Some(6), "{}", said(&refused));
    let way = "`systemctl --user start cgleaf-helper.socket` brings that back";
    assert!(said(&refused).contains(way), "{}", said(&refused));
    assert_eq!(system.running(SLEEPER), 1);
    system.apt("install ./cgleaf-helper_*-1_*.deb");
    system.user("cgleaf destroy after");
}

#[test]
fn sessions_from_before_the_installation_stay_in_reach_on_systemd_252() {
    require!(Systemd, Cc, Downloads);
    if let Some(system) = Installed::debian("bookworm") {
        keeps_what_was_there_before(&system);
    }
}

#[test]
fn sessions_from_before_the_installation_stay_in_reach_on_systemd_257() {
    require!(Systemd, Cc, Downloads);
    if let Some(system) = Installed::debian("trixie") {
        keeps_what_was_there_before(&system);
    }
}

const PLACE: [&str; 6] = [
    "cgleaf",
    "run",
    "--",
    "sh",
    "-c",
    "grep ^0:: /proc/self/cgroup",
];

fn serves_one_user(system: &Installed) {
    system.apt(&format!("install {BOTH}"));
    system.root("systemctl enable --now cgleaf-helper@1000.socket");
    let place = done(system.guest().user(PLACE));
    assert!(
        place.contains("/user-1000.slice/cgleaf-helper@1000.service/"),
        "{place}"
    );
    let status = system.root(
        "grep -E '^(Cap(Prm|Eff|Bnd)|NoNewPrivs|Seccomp|Uid):' /proc/$(systemctl show -P MainPID cgleaf-helper@1000.service)/status",
    );
    for line in [
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "Uid:\t0",
    ] {
        assert!(status.contains(line), "{line:?} is not in {status}");
    }
    refuses_another_user(system);
    assert_exposed_as_written_down(system);

    // With the package goes what the administrator enabled.
    system.apt("purge cgleaf-helper cgleaf");
    let left = "ls -d /etc/systemd/system/*.wants/*cgleaf* /run/cgleaf 2>/dev/null || true";
    assert_eq!(system.root(left).trim(), "");
}

/// systemd-analyze's figures, as packaging/README.md has them.
fn assert_exposed_as_written_down(system: &Installed) {
    let readme =
        std::fs::read_to_string(folder().join("README.md")).expect("read packaging/README.md");
    let analyze = "LC_ALL=C systemd-analyze --no-pager security";
    for (unit, said) in [
        (
            "`cgleaf-helper-node.service`",
            system.root(&format!("{analyze} cgleaf-helper-node.service")),
        ),
        (
            "`cgleaf-helper@1000.service`",
            system.root(&format!("{analyze} cgleaf-helper@1000.service")),
        ),
        (
            "`cgleaf-helper.service` of a user",
            system.user(&format!("{analyze} --user cgleaf-helper.service")),
        ),
    ] {
        let overall = said.lines().last().unwrap_or_default();
        println!("{overall}");
        let figure = overall
            .split_once("service: ")
            .and_then(|(_, rest)| rest.split(' ').next())
            .unwrap_or_else(|| panic!("no figure in {said}"));
        let row = format!("| {unit} | {figure} |");
        assert!(
            readme.contains(&row),
            "{row} is not in packaging/README.md: {said}"
        );
    }
}

/// He is kept out by the socket's mode, and has his own helper meanwhile.
fn refuses_another_user(system: &Installed) {
    let socket = "/run/cgleaf/1000/helper.sock";
    let mode = system.root(&format!("stat -c '%a %u' {socket}"));
    assert_eq!(mode.trim(), "600 1000");
    let refused = system
        .guest()
        .as_user(
            User::Other,
            ["cgleaf", "--socket", socket, "run", "--", "true"],
        )
        .output()
        .expect("run cgleaf");
    assert_eq!(refused.status.code(), Some(125));
    let words = said(&refused);
    println!("{words}");
    assert!(words.contains("Permission denied"), "{words}");
    let place = done(system.guest().as_user(User::Other, PLACE));
    assert!(
        place.contains("/user-1001.slice/user@1001.service/"),
        "{place}"
    );
}

#[test]
fn root_serves_one_user_where_an_administrator_says_so_on_systemd_252() {
    require!(Systemd, Cc, Downloads);
    if let Some(system) = Installed::debian("bookworm") {
        serves_one_user(&system);
    }
}

#[test]
fn root_serves_one_user_where_an_administrator_says_so_on_systemd_257() {
    require!(Systemd, Cc, Downloads);
    if let Some(system) = Installed::debian("trixie") {
        serves_one_user(&system);
    }
}

/// Each shell's own way to a completion that it has not loaded yet, asked for a session's name.
const ASK_BASH: &str = r#"bash -c '. /usr/share/bash-completion/bash_completion
_completion_loader cgleaf
[[ $(complete -p cgleaf) =~ -F\ ([^ ]+) ]]
COMP_WORDS=(cgleaf destroy bu) COMP_CWORD=2 COMP_LINE="cgleaf destroy bu" COMP_POINT=17
${BASH_REMATCH[1]} cgleaf bu destroy
echo "${COMPREPLY[@]}"'"#;
const ASK_ZSH: &str = "zsh -c 'autoload -Uz compinit; compinit -u -D; print $_comps[cgleaf]; autoload +X _cgleaf && whence -v _cgleaf'";
const ASK_FISH: &str = "fish -c 'complete -C \"cgleaf destroy bu\"'";

/// The root of a system has others' units too, and some that its administrator masked.
#[test]
fn what_others_have_installed_is_left_alone() {
    let root = tempfile::tempdir().expect("a folder");
    let units = root.path().join("usr/local/lib/systemd/system");
    fs::create_dir_all(&units).expect("make a folder");
    let other = units.join("other.service");
    fs::write(&other, "[Service]\nExecStart=/usr/bin/other\n").expect("a unit");
    let masked = units.join("masked.service");
    std::os::unix::fs::symlink("/dev/null", &masked).expect("mask one");
    let before = fs::metadata(&other).expect("look at it");
    // Twice: a system is made anew with what it has.
    for _ in 0..2 {
        let mut install = Command::new(folder().join("install"));
        install.args(["--prefix", "/usr/local"]).arg(programs());
        done({
            install.arg(root.path());
            install
        });
    }
    let after = fs::metadata(&other).expect("look at it");
    assert_eq!((before.ino(), before.len()), (after.ino(), after.len()));
    assert_eq!(
        fs::read_link(&masked).expect("a link"),
        Path::new("/dev/null")
    );
    let own = fs::read_to_string(units.join("cgleaf-helper@.service")).expect("read ours");
    assert!(own.contains("ExecStart=/usr/local/libexec/"), "{own}");
}

#[test]
fn the_shells_find_the_completions_by_themselves() {
    require!(Systemd, Cc, Downloads);
    if !have("zsh") || !have("fish") {
        return;
    }
    let Some(packages) = debs() else { return };
    let Some(loader) = fetched("fetch-debs", &["bash-completion", "bash-completion"]) else {
        return;
    };
    let options = GuestOptions::new()
        .bind(packages, "/packages")
        .bind(loader, "/loader");
    let system = Installed::up(&options);
    system.root("cp -a /loader/usr/. /usr/");
    system.apt(&format!("install {BOTH}"));
    system.user("cgleaf start --name buildfarm -- sleep 3600");
    assert_eq!(system.user(ASK_BASH).trim(), "buildfarm");
    let zsh = system.user(ASK_ZSH);
    assert!(
        zsh.starts_with("_cgleaf\n") && zsh.contains("/usr/share/zsh/vendor-completions/_cgleaf"),
        "{zsh}"
    );
    assert_eq!(system.user(ASK_FISH).trim(), "buildfarm");
    system.user("cgleaf destroy buildfarm");
}

#[test]
fn lintian_has_nothing_to_say() {
    require!(Cc);
    if !have("lintian") {
        return;
    }
    let Some(folder) = debs() else { return };
    let debs: Vec<_> = std::fs::read_dir(folder)
        .expect("read the packages' folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| is_deb(path, "-1_"))
        .collect();
    assert_eq!(debs.len(), 2, "{debs:?}");
    let lintian = Command::new("lintian")
        .args([
            "--fail-on",
            "error,warning",
            "--tag-display-limit",
            "0",
            "--allow-root",
        ])
        .args(&debs)
        .output()
        .expect("run lintian");
    assert!(
        lintian.status.success() && lintian.stdout.is_empty(),
        "{}",
        said(&lintian)
    );
}

fn is_deb(path: &Path, revision: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.contains(revision) && name.ends_with(".deb")
}
