//! `doctor` in services of a real systemd whose settings are in its way: its tier is `run`'s, and its advice, put into the unit as it
//! stands, gives the cgroup tier.

use std::sync::{Mutex, PoisonError};

use cgleaf_tests::doctor::text;
use cgleaf_tests::frontend::{Answer, finish};
use cgleaf_tests::lab::Guest;
use serde_json::Value;

/// A service of the guest's that calls cgleaf, with a drop-in as `systemctl edit` makes one.
struct Service<'a> {
    guest: &'a Guest,
    name: &'static str,
    settings: Vec<String>,
}

/// Makes the unit and its drop-in, runs `cgleaf WORDS` in it, shows what that wrote and how it ended.
const SERVICE: &str = r#"name=$1 words=$2 settings=$3 advised=$4 unit=/run/systemd/system/$name out=$(mktemp -d)
printf '[Unit]\nStartLimitIntervalSec=0\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/cgleaf/cgleaf %s\nSuccessExitStatus=12 125 SIGSYS\nStandardOutput=file:%s/out\nStandardError=file:%s/err\n%s\n' \
    "$words" "$out" "$out" "$settings" >"$unit"
mkdir -p "$unit.d" && printf '[Service]\n%s\n' "$advised" >"$unit.d/override.conf"
systemctl daemon-reload && systemctl start "$name"
cat "$out/out"; cat "$out/err" >&2; [ -s "$out/out" ] || systemctl show --property=Result,ExecMainCode,ExecMainStatus,ActiveState "$name" >&2
systemctl show --property=ExecMainStatus --value "$name" >"$out/status"
systemctl stop "$name"; systemctl reset-failed "$name" 2>/dev/null
read -r status <"$out/status"; rm -r "$out" "$unit" "$unit.d"; exit "$status""#;

impl<'a> Service<'a> {
    fn new(guest: &'a Guest, name: &'static str, settings: &[&str]) -> Self {
        Self {
            guest,
            name,
            settings: settings.iter().map(|one| (*one).to_owned()).collect(),
        }
    }

    fn cgleaf(&self, words: &str, advised: &[String]) -> Answer {
        let settings = self.settings.join("\n");
        let words = [
            "sh",
            "-c",
            SERVICE,
            "sh",
            self.name,
            words,
            &settings,
            &advised.join("\n"),
        ];
        root(self.guest, &words)
    }

    fn doctor(&self, advised: &[String]) -> Value {
        let answer = self.cgleaf("doctor --json", advised);
        let result = answer.json()["result"].clone();
        let code = if result["tier"] == "cgroup" { 0 } else { 12 };
        assert_eq!(answer.code(), code, "{:?}: {answer:?}", self.settings);
        result
    }

    /// What `run` is given, and what it says.
    fn run(&self) -> (Value, String) {
        let answer = self.cgleaf("run -- true", &[]);
        let tier = match answer.code() {
            0 if answer.stderr.contains("no leaf can be had here") => "group".into(),
            0 => "cgroup".into(),
            // 125, or the number of the signal that a filter sends.
            _ => Value::Null,
        };
        (tier, answer.stderr)
    }
}

/// One at a time: when the manager reads its files again it reads those of transient units too, and gives one that was not executed
/// yet other words than it was made with.
fn root(guest: &Guest, words: &[&str]) -> Answer {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    finish(guest.root(words))
}

/// The settings that an advice names, as they stand in it.
fn settings_of(advice: &str) -> Vec<String> {
    let quoted = advice.split('`').skip(1).step_by(2);
    let is_setting = |word: &&str| word.starts_with(char::is_uppercase) && word.contains('=');
    quoted.filter(is_setting).map(str::to_owned).collect()
}

#[test]
fn the_advice_in_a_service_gives_leaves_whatever_its_settings_take_away() {
    let Some(guest) = Guest::shared() else { return };
    for (settings, wanted) in [
        (&["User=lab"][..], "Delegate=yes"),
        (
            &["User=lab", "ProtectProc=invisible"],
            "ProtectProc=default",
        ),
        (
            &["User=lab", "ProtectControlGroups=yes"],
            "ProtectControlGroups=no",
        ),
        (
            &["User=lab", "RestrictAddressFamilies=AF_INET"],
            "RestrictAddressFamilies=AF_UNIX",
        ),
        (&["User=lab", "ProtectSystem=strict"], "ReadWritePaths=/tmp"),
        (&["DynamicUser=yes"], "Delegate=yes"),
        (
            &["RestrictAddressFamilies=AF_INET"],
            "RestrictAddressFamilies=AF_UNIX",
        ),
    ] {
        let service = Service::new(guest, r"lab\x2djob.service", settings);
        let told = service.doctor(&[]);
        assert_eq!(told["tier"], "group", "{settings:?}: {told}");
        let (tier, said) = service.run();
        assert_eq!(told["tier"], tier, "{settings:?}: {said}");
        let advice = text(&told, "advice");
        assert!(
            advice.contains(r"`systemctl edit 'lab\x2djob.service'`"),
            "{advice}"
        );
        let advised = settings_of(advice);
        assert!(
            advised.iter().any(|one| one.starts_with(wanted)),
            "{settings:?}: {advice}"
        );
        let told = service.doctor(&advised);
        assert_eq!(told["tier"], "cgroup", "{settings:?} {advised:?}: {told}");
        if settings.contains(&"DynamicUser=yes") {
            assert!(
                !format!("{said}{told}").contains("linger`"),
                "nobody logs in: {said} {told}"
            );
        }
    }
}

/// A helper that was started where /proc hides processes would have every other caller of that user refused.
#[test]
fn no_helper_stays_that_could_not_see_who_asks() {
    let Some(guest) = Guest::shared() else { return };
    let hidden = Service::new(
        guest,
        "hidden.service",
        &["User=other", "ProtectProc=invisible"],
    );
    let (tier, said) = hidden.run();
    assert_eq!(tier, "group", "{said}");
    assert!(said.contains("hidepid"), "{said}");
    // Its socket would be where this one looks.
    let seeing = Service::new(guest, "seeing.service", &["User=other"]);
    let (tier, said) = seeing.run();
    assert_eq!(tier, "group", "{said}");
    assert!(said.contains("place not served"), "{said}");
}

#[test]
fn a_proc_of_processes_alone_is_named() {
    let Some(guest) = Guest::shared() else { return };
    let service = Service::new(guest, "subset.service", &["User=lab", "ProcSubset=pid"]);
    let told = service.doctor(&[]);
    let (tier, said) = service.run();
    assert_eq!(told["tier"], tier, "{said}");
    let advised = settings_of(text(&told, "advice"));
    assert_eq!(advised, ["ProcSubset=all"], "{told}");
    assert!(!service.doctor(&advised)["tier"].is_null());
}

/// What a filter refuses is done without; where it kills, doctor lives and says what `run` comes to.
#[test]
fn beneath_a_system_call_filter_doctor_says_what_run_gives() {
    let Some(guest) = Guest::shared() else { return };
    let newer = "SystemCallFilter=~openat2 name_to_handle_at pidfd_open";
    let delegated = [
        "User=lab",
        "Delegate=yes",
        "Environment=CGLEAF_SCOPE_DIR=/sys/fs/cgroup/system.slice/filtered.service",
    ];
    let (refused, killed) = ("SystemCallErrorNumber=EPERM", "SystemCallErrorNumber=kill");
    for (filter, answers) in [
        (newer, &[refused, killed][..]),
        ("SystemCallFilter=~clone3", &[killed]),
        ("SystemCallFilter=@system-service", &[killed]),
    ] {
        for answer in answers {
            let settings = [&delegated[..], &[filter, *answer]].concat();
            let service = Service::new(guest, "filtered.service", &settings);
            let told = service.doctor(&[]);
            let (tier, said) = service.run();
            assert_eq!(told["tier"], tier, "{filter} {answer}: {told} {said}");
            if answer.ends_with("EPERM") && filter == newer {
                assert_eq!(tier, "cgroup", "{told} {said}");
            }
            if tier != "cgroup" && answer.ends_with("kill") {
                assert!(text(&told, "reason").contains("SIGSYS"), "{filter}: {told}");
                let advised = settings_of(text(&told, "advice"));
                assert_eq!(advised, ["SystemCallErrorNumber=EPERM"], "{filter}: {told}");
            }
        }
    }
}

/// cron's jobs are in cron's service, which is root's: nothing of it can be the user's. His own manager's is.
#[test]
fn a_job_of_somebody_elses_service_is_advised_to_go_beneath_its_own_manager() {
    let Some(guest) = Guest::shared() else { return };
    let job = |command: &str| {
        let script = format!(
            "setpriv --reuid 1000 --regid 1000 --init-groups --reset-env {command}; exit $?"
        );
        root(guest, &["sh", "-c", &script])
    };
    let doctor = "/cgleaf/cgleaf doctor --json";
    let told = job(doctor).json()["result"].clone();
    assert_eq!(told["tier"], "group", "{told}");
    let advice = text(&told, "advice");
    let command = advice.split('`').find(|part| part.contains("systemd-run"));
    let command = command
        .unwrap_or_else(|| panic!("{advice}"))
        .replace("COMMAND", doctor);
    let told = job(&format!("env {command}")).json()["result"].clone();
    assert_eq!(told["tier"], "cgroup", "{told}");
}

/// The files of the guest's records do not fill up by what doctor tried.
#[test]
fn doctor_leaves_no_record_in_a_service() {
    let Some(guest) = Guest::shared() else { return };
    let state = ["User=lab", "Environment=XDG_STATE_HOME=/tmp/doctors-state"];
    let filter = ["SystemCallFilter=~clone3", "SystemCallErrorNumber=kill"];
    Service::new(guest, "records.service", &state).doctor(&[]);
    Service::new(guest, "records.service", &[&state[..], &filter].concat()).doctor(&[]);
    let left = root(guest, &["find", "/tmp/doctors-state", "-name", "*.json"]);
    assert_eq!(left.expect(0), "");
}

/// Puts what is advised into the unit, again and again, until the tier is cgroup. All that was advised.
#[track_caller]
fn followed(service: &Service<'_>) -> Vec<String> {
    let mut advised = Vec::new();
    for _ in 0..4 {
        let told = service.doctor(&advised);
        if told["tier"] == "cgroup" {
            return advised;
        }
        let advice = text(&told, "advice");
        assert!(!advice.contains("chown"), "{:?}: {told}", service.settings);
        let next = settings_of(advice);
        assert!(
            next.iter().any(|one| !advised.contains(one)),
            "{:?} {advised:?}: {told}",
            service.settings
        );
        advised.extend(next);
    }
    panic!("{:?}: no cgroup tier after {advised:?}", service.settings);
}

#[test]
fn whatever_a_unit_has_set_is_undone_by_what_is_advised() {
    let Some(guest) = Guest::shared() else { return };
    let refused = "SystemCallErrorNumber=EPERM";
    for (settings, wanted) in [
        (&["LimitNOFILE=16"][..], "LimitNOFILE=1024"),
        (
            &["InaccessiblePaths=/tmp"],
            "RuntimeDirectory=cgleaf-undone",
        ),
        (
            &["TemporaryFileSystem=/tmp:ro"],
            "RuntimeDirectory=cgleaf-undone",
        ),
        (&["TemporaryFileSystem=/run"], "Delegate=yes"),
        (&["ReadOnlyPaths=/"], "ReadWritePaths=/sys/fs/cgroup"),
        (&["ReadOnlyPaths=/sys/fs/cgroup /mnt"], "ReadOnlyPaths=/mnt"),
        (&["InaccessiblePaths=/sys"], "InaccessiblePaths="),
        (&["NoExecPaths=/cgleaf/cgleaf-helper"], "NoExecPaths="),
        (
            &["InaccessiblePaths=/cgleaf/cgleaf-helper"],
            "InaccessiblePaths=",
        ),
        (
            &["SystemCallFilter=~flock", refused],
            "SystemCallFilter=@system-service",
        ),
        (
            &["SystemCallFilter=~setxattr fsetxattr", refused],
            "SystemCallFilter=@system-service",
        ),
        // A name that is wrong is put right by this unit's own.
        (
            &["Environment=CGLEAF_SCOPE_DIR=/sys/fs/cgroup/system.slice"],
            "Environment=CGLEAF_SCOPE_DIR=/sys/fs/cgroup/system.slice/undone.service",
        ),
    ] {
        let settings = [&["User=lab"], settings].concat();
        let service = Service::new(guest, "undone.service", &settings);
        let advised = followed(&service);
        assert!(
            advised.iter().any(|one| one == wanted),
            "{settings:?}: {advised:?}"
        );
    }
}

/// What an earlier run has left in /tmp, and what is named after a boot, is gone after the next one.
#[test]
fn what_is_advised_is_there_after_a_boot_too() {
    let Some(guest) = Guest::shared() else { return };
    // Nobody else in this guest is that user.
    let free = Service::new(guest, "boots.service", &["User=daemon"]);
    free.run();
    let strict = Service::new(
        guest,
        "boots.service",
        &["User=daemon", "ProtectSystem=strict"],
    );
    let advised = followed(&strict);
    root(
        guest,
        &[
            "sh",
            "-c",
            "rm -r /tmp/cgleaf-[0-9]; ls -d /tmp/cgleaf-[0-9]",
        ],
    )
    .expect(2);
    let told = strict.doctor(&advised);
    assert_eq!(told["tier"], "cgroup", "{advised:?}: {told}");
    // The state directory has one directory for each boot.
    let state = ["User=lab", "Environment=XDG_STATE_HOME=/var/tmp"];
    Service::new(guest, "boots.service", &state).run();
    let read_only = [&state[..], &["ReadOnlyPaths=/"]].concat();
    let told = Service::new(guest, "boots.service", &read_only).doctor(&[]);
    let advised = settings_of(text(&told, "advice"));
    assert!(
        advised.contains(&"ReadWritePaths=/var/tmp".to_owned()),
        "{told}"
    );
}

/// A service whose program changes the user is root's, whatever is delegated to it.
#[test]
fn a_service_that_changes_its_user_by_itself_is_told_to_leave_that_to_systemd() {
    let Some(guest) = Guest::shared() else { return };
    let setpriv = "setpriv --reuid 1000 --regid 1000 --clear-groups /cgleaf/cgleaf doctor --json";
    let run = [
        "systemd-run",
        "--quiet",
        "--pipe",
        "--wait",
        "--collect",
        "--property=Delegate=yes",
    ];
    let words: Vec<&str> = run.into_iter().chain(setpriv.split(' ')).collect();
    let told = root(guest, &words).json()["result"].clone();
    assert_eq!(told["tier"], "group", "{told}");
    let advised = settings_of(text(&told, "advice"));
    assert!(advised.contains(&"User=1000".to_owned()), "{told}");
}
