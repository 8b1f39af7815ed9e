//! Every way in which an attestation can be wrong, on real cgroups (DESIGN 3.3). Only the true one is proven, and a
//! look changes nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cgleaf_shared::attestation::Attestation;
use cgleaf_shared::cgroup::{CgroupPath, CgroupRoot};
use cgleaf_shared::id::{BootId, BootTime, CgroupId, Nonce, SessionId, Uid};
use cgleaf_tests::scratch::{Scratch, Sleeper, copy_program};

/// A leaf with a member, made by hand as the helper makes one, and a directory for files.
struct Case {
    scratch: Scratch,
    root: CgroupRoot,
    files: PathBuf,
    member: Option<Sleeper>,
    attestation: Attestation,
}

impl Case {
    fn new(name: &str) -> Option<Self> {
        let scratch = Scratch::new(0)?;
        let root = CgroupRoot::open().expect("open the cgroup2 root");
        let files = std::env::temp_dir().join(format!(
            "cgleaf-attestation-{name}-{}",
            cgleaf_tests::scratch::tag()
        ));
        fs::create_dir_all(&files).unwrap();
        let domain = CgroupPath::parse(&format!(
            "/{}",
            scratch.path().file_name().unwrap().to_str().unwrap()
        ))
        .unwrap();
        let nonce = Nonce::generate().unwrap();
        let session: SessionId = "s".parse().unwrap();
        let leaf = make_leaf(&scratch, &session, nonce);
        let member = Sleeper::new(0);
        fs::write(leaf.join("cgroup.procs"), member.pid().to_string()).unwrap();
        let leaf_path = domain.child("cgleaf-s.leaf").unwrap();
        let attestation = Attestation {
            format: 1,
            session,
            nonce,
            boot_id: BootId::current().unwrap(),
            root_id: root.id(),
            domain_id: root.open_path(&domain).unwrap().id().unwrap(),
            leaf_id: root.open_path(&leaf_path).unwrap().id().unwrap(),
            domain_path: domain,
            leaf_path,
            owner_uid: Uid(0),
            created: BootTime::now(),
            helper_build: "test".into(),
        };
        Some(Self {
            scratch,
            root,
            files,
            member: Some(member),
            attestation,
        })
    }

    fn leaf(&self) -> PathBuf {
        self.scratch.path().join("cgleaf-s.leaf")
    }

    /// The verdict of a verifier that `wrap` starts, if given, as a shell script with `$PROBE` in it.
    fn verdict(&self, wrap: Option<&str>, without: &str) -> String {
        let file = self.files.join("attestation.json");
        fs::write(&file, serde_json::to_vec(&self.attestation).unwrap()).unwrap();
        let probe = format!(
            "{} {} {without}",
            env!("CARGO_BIN_EXE_verify-probe"),
            file.display()
        );
        let script = wrap.unwrap_or("exec $PROBE").replace("$PROBE", &probe);
        let script = script.replace("$MOUNT", &self.root.mount().point.display().to_string());
        let script = script.replace("$SCOPE", &self.scratch.path().display().to_string());
        let output = Command::new("sh").args(["-ec", &script]).output().unwrap();
        assert!(
            output.status.success(),
            "{script}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn proven(&self) -> String {
        format!("proven {}", self.attestation.leaf_id)
    }

    /// What an action on a wrong leaf would change.
    fn control_files(&self) -> Vec<String> {
        ["cgroup.freeze", "cgroup.procs", "cgroup.events"]
            .map(|file| fs::read_to_string(self.leaf().join(file)).unwrap_or_default())
            .to_vec()
    }

    fn end_member(&mut self) {
        self.member = None;
        cgleaf_tests::scratch::wait_until("the member's end", || {
            fs::read_to_string(self.leaf().join("cgroup.events"))
                .is_ok_and(|text| text.contains("populated 0"))
        });
    }

    fn remove_leaf(&mut self) {
        self.end_member();
        cgleaf_tests::scratch::wait_until("rmdir of the leaf", || {
            fs::remove_dir(self.leaf()).is_ok()
        });
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        self.member = None;
        let _ = fs::remove_dir_all(&self.files);
    }
}

fn make_leaf(scratch: &Scratch, session: &SessionId, nonce: Nonce) -> PathBuf {
    let leaf = scratch.child(&format!("cgleaf-{session}.leaf"), 0);
    set(&leaf, "session", session.as_str());
    set(&leaf, "nonce", &nonce.to_string());
    leaf
}

fn set(leaf: &Path, name: &str, value: &str) {
    xattr::set(leaf, format!("user.cgleaf.{name}"), value.as_bytes()).unwrap();
}

/// The true one is proven, and nothing that a verifier does shows in the leaf.
#[test]
fn the_true_one_is_proven_and_a_look_changes_nothing() {
    let Some(case) = Case::new("true") else {
        return;
    };
    let before = case.control_files();
    assert_eq!(case.verdict(None, ""), case.proven());
    assert_eq!(case.control_files(), before);
}

/// What is wrong in the record alone: each is refused in its own way, and by its own guard.
#[test]
fn a_record_that_was_changed_is_refused() {
    let Some(mut case) = Case::new("record") else {
        return;
    };
    let other_session: SessionId = "other".parse().unwrap();
    let other = make_leaf(&case.scratch, &other_session, Nonce::generate().unwrap());
    let mut bystander = Sleeper::new(0);
    fs::write(other.join("cgroup.procs"), bystander.pid().to_string()).unwrap();
    let truth = case.attestation.clone();
    let scope = truth.domain_path.clone();
    let other_path = scope.child("cgleaf-other.leaf").unwrap();
    let other_id = case.root.open_path(&other_path).unwrap().id().unwrap();
    type Edit<'a> = Box<dyn Fn(&mut Attestation) + 'a>;
    let edits: Vec<(&str, Edit<'_>, &str, &str)> = vec![
        (
            "another boot",
            Box::new(|a| a.boot_id = BootId::from_bytes([7; 16])),
            "foreign it was recorded in an earlier boot",
            "boot",
        ),
        (
            "another root",
            Box::new(|a| a.root_id = CgroupId(999_999)),
            "unreadable",
            "root",
        ),
        (
            "another id",
            Box::new(|a| a.leaf_id = CgroupId(999_999)),
            "gone",
            "id",
        ),
        (
            "another nonce",
            Box::new(|a| a.nonce = Nonce::from_bytes([7; 16])),
            "foreign",
            "nonce",
        ),
        (
            "the scope directory itself",
            Box::new(|a| a.leaf_path = scope.clone()),
            "gone",
            "id",
        ),
        (
            "the root",
            Box::new(|a| a.leaf_path = CgroupPath::root()),
            "gone",
            "id",
        ),
        (
            "another session's leaf, by path",
            Box::new(|a| a.leaf_path = other_path.clone()),
            "gone",
            "id",
        ),
        (
            "another session's leaf, by path and id",
            Box::new(|a| (a.leaf_path, a.leaf_id) = (other_path.clone(), other_id)),
            "foreign",
            "nonce",
        ),
        (
            "a path that was never there",
            Box::new(|a| a.leaf_path = scope.child("never").unwrap()),
            "gone",
            "",
        ),
        (
            "a newer format",
            Box::new(|a| a.format = 2),
            "unreadable it has format 2",
            "",
        ),
    ];
    for (what, edit, expected, guard) in edits {
        case.attestation = truth.clone();
        edit(&mut case.attestation);
        let verdict = case.verdict(None, "");
        assert!(verdict.starts_with(expected), "{what}: {verdict}");
        // Every other guard is passed, so that with this one out the wrong one is not seen to be wrong.
        if matches!(
            what,
            "another boot" | "another root" | "another id" | "another nonce"
        ) {
            let unseen = case.verdict(None, guard);
            assert!(
                unseen.starts_with("proven"),
                "{what}, without the guard {guard}: {unseen}"
            );
        }
    }
    assert!(bystander.alive());
}

#[test]
fn the_leaf_of_another_session_is_not_taken_for_ones_own_even_with_its_nonce() {
    let Some(mut case) = Case::new("session") else {
        return;
    };
    case.attestation.session = "s2".parse().unwrap();
    let verdict = case.verdict(None, "");
    assert!(
        verdict.starts_with("foreign the leaf belongs to another session"),
        "{verdict}"
    );
}

#[test]
fn a_removed_leaf_is_gone_and_its_namesake_is_not_touched() {
    let Some(mut case) = Case::new("namesake") else {
        return;
    };
    case.remove_leaf();
    assert_eq!(case.verdict(None, ""), "gone");
    // Made again under the same name, even with the same attributes: another id.
    let leaf = make_leaf(
        &case.scratch,
        &case.attestation.session,
        case.attestation.nonce,
    );
    let mut stranger = Sleeper::new(0);
    fs::write(leaf.join("cgroup.procs"), stranger.pid().to_string()).unwrap();
    assert_eq!(case.verdict(None, ""), "gone");
    assert!(
        case.verdict(None, "id").starts_with("proven"),
        "without the guard the namesake is taken"
    );
    assert!(stranger.alive());
}

#[test]
fn a_scope_that_was_made_again_proves_nothing() {
    let Some(mut case) = Case::new("scope") else {
        return;
    };
    case.remove_leaf();
    fs::remove_dir(case.scratch.path()).unwrap();
    assert_eq!(case.verdict(None, ""), "gone");
    fs::create_dir(case.scratch.path()).unwrap();
    let _leaf = make_leaf(
        &case.scratch,
        &case.attestation.session,
        case.attestation.nonce,
    );
    assert_eq!(case.verdict(None, ""), "gone");
}

#[test]
fn a_nonce_that_is_changed_or_missing_is_told() {
    let Some(case) = Case::new("nonce") else {
        return;
    };
    for change in ["00000000000000000000000000000000", "", "not hex", "\u{e9}"] {
        set(&case.leaf(), "nonce", change);
        assert!(
            case.verdict(None, "")
                .starts_with("foreign the leaf's nonce"),
            "{change:?}"
        );
        assert_eq!(
            case.verdict(None, "nonce"),
            case.proven(),
            "without the guard it is not seen"
        );
    }
    xattr::remove(case.leaf(), "user.cgleaf.nonce").unwrap();
    assert!(
        case.verdict(None, "")
            .starts_with("foreign the leaf's nonce")
    );
}

/// The verifier's surroundings are wrong: it cannot tell, or sees that there is nothing; it never proves.
#[test]
fn a_verifier_that_sees_another_tree_proves_nothing() {
    let Some(case) = Case::new("tree") else {
        return;
    };
    let elsewhere = "mkdir -p $SCOPE/elsewhere; echo $$ > $SCOPE/elsewhere/cgroup.procs; ";
    let own_namespace = format!(
        "{elsewhere} unshare -C -m sh -ec 'umount -l $MOUNT; mount -t cgroup2 none $MOUNT; exec $PROBE'; \
         echo $$ > $MOUNT/cgroup.procs"
    );
    let other_root = "unreadable the paths in it are relative to cgroup";
    let cases = [
        (
            "another cgroup namespace",
            own_namespace.as_str(),
            other_root,
        ),
        (
            "a subtree bound over the root",
            "unshare -m sh -ec 'mount --bind $SCOPE $MOUNT; exec $PROBE'",
            other_root,
        ),
        (
            "another file system over the root",
            "unshare -m sh -ec 'mount -t tmpfs t $MOUNT; exec $PROBE'",
            "unreadable",
        ),
        (
            "a tmpfs with the same files over the scope",
            "unshare -m sh -ec 'mkdir -p /tmp/$$; cp -r $SCOPE /tmp/$$/ 2>/dev/null || true; mount -t tmpfs t $SCOPE; \
             mkdir -p $SCOPE/cgleaf-s.leaf; echo populated 0 > $SCOPE/cgleaf-s.leaf/cgroup.events; rm -rf /tmp/$$; exec $PROBE'",
            "unreadable open",
        ),
        (
            "a link in the path",
            "unshare -m sh -ec 'mount -t tmpfs t $SCOPE; ln -s / $SCOPE/cgleaf-s.leaf; exec $PROBE'",
            "unreadable open",
        ),
        (
            "no /proc",
            "unshare -m sh -ec 'mount -t tmpfs t /proc; exec $PROBE'",
            "unreadable",
        ),
    ];
    for (what, wrap, expected) in cases {
        let verdict = case.verdict(Some(wrap), "");
        assert!(verdict.starts_with(expected), "{what}: {verdict}");
    }
    assert_eq!(
        case.verdict(None, ""),
        case.proven(),
        "and from here it still is what it was"
    );
}

/// Another cgroup2 directory bound over the leaf's place: the path then leads across a mount, which is refused before
/// anything else is asked. Without that, the id still tells.
#[test]
fn a_mount_on_the_path_is_not_crossed() {
    let Some(case) = Case::new("xdev") else {
        return;
    };
    let other = case.scratch.child("other", 0);
    let wrap = format!(
        "unshare -m sh -ec 'mount --bind {} $SCOPE/cgleaf-s.leaf; exec $PROBE'",
        other.display()
    );
    let verdict = case.verdict(Some(&wrap), "");
    assert!(verdict.starts_with("unreadable open"), "{verdict}");
    assert_eq!(
        case.verdict(Some(&wrap), "open"),
        "gone",
        "without the guard it is opened, and the id is another"
    );
}

/// Who may not look cannot tell.
#[test]
fn a_verifier_without_the_right_to_look_cannot_tell() {
    use std::os::unix::fs::PermissionsExt;
    let Some(case) = Case::new("rights") else {
        return;
    };
    fs::set_permissions(case.leaf(), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(&case.files, fs::Permissions::from_mode(0o755)).unwrap();
    let readable = case.files.join("probe");
    copy_program(Path::new(env!("CARGO_BIN_EXE_verify-probe")), &readable);
    let file = case.files.join("attestation.json");
    fs::write(&file, serde_json::to_vec(&case.attestation).unwrap()).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .args([readable, file])
        .output()
        .unwrap();
    let verdict = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        verdict.starts_with("unreadable open"),
        "{verdict} {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The kernel's side of it: ids are not reused, and on 64-bit the inode number is the id.
#[test]
fn a_directory_made_again_has_another_id() {
    use std::os::unix::fs::MetadataExt;
    let Some(case) = Case::new("ids") else { return };
    assert_eq!(
        fs::metadata(case.leaf()).unwrap().ino(),
        case.attestation.leaf_id.0
    );
    let path = case.attestation.domain_path.child("again").unwrap();
    let mut seen = Vec::new();
    for _ in 0..20 {
        let dir = case.scratch.child("again", 0);
        let id = case.root.open_path(&path).unwrap().id().unwrap();
        assert!(!seen.contains(&id), "id {id} came twice");
        seen.push(id);
        fs::remove_dir(dir).unwrap();
    }
}
