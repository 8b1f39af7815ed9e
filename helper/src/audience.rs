//! In whose terms an answer is put. A client in a container, and whoever asks the node service, is told nothing of the host: paths
//! are those that the container itself has, from its own cgroup on, and a process has the number that it gives it.

use std::path::Path;

use cgleaf_shared::cgroup::CgroupPath;
use cgleaf_shared::process::Pid;
use cgleaf_shared::wire::{Mode, Refusal, Reply, VerdictReport};

use crate::peer::Look;
use crate::place::{Facts, Rules, container_around, is_host_root};

/// What stands for a path that the client has no name for.
const HIDDEN: &str = "a path of the host";

/// Who reads an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Somebody who sees what the helper sees.
    Host,
    /// Somebody else.
    Outsider {
        /// The cgroup of the container that it is in, if it is known to be in one.
        container: Option<CgroupPath>,
        /// Its number here, and the one it has itself.
        numbers: Option<(Pid, Pid)>,
    },
}

impl Audience {
    /// Somebody of whom nothing is known.
    pub(crate) fn unknown(mode: Mode) -> Self {
        if mode != Mode::NodeService {
            return Self::Host;
        }
        Self::Outsider {
            container: None,
            numbers: None,
        }
    }

    /// A caller.
    pub(crate) fn of(facts: &Facts, look: &Look, rules: &Rules) -> Self {
        let container = container_around(facts, rules);
        let sees_the_host = is_host_root(facts, rules)
            || (rules.mode != Mode::NodeService && container.is_none() && !facts.deeper);
        if sees_the_host {
            return Self::Host;
        }
        Self::Outsider {
            // Whoever only gave his cgroup the name of one has the host's paths.
            container: container.filter(|_| facts.container_is_genuine),
            numbers: Some((look.process.pid, look.inner)),
        }
    }

    /// Whether it can find that cgroup itself.
    pub(crate) fn sees(&self, path: &CgroupPath) -> bool {
        match self {
            Self::Host => true,
            Self::Outsider { container, .. } => {
                container.as_ref().is_some_and(|root| path.is_within(root))
            }
        }
    }

    /// Puts an answer in its terms. `mount` is where the helper sees the cgroup tree.
    ///
    /// An attestation stays as it is: it is what the client has to show again, and names a place without opening it.
    pub(crate) fn put(&self, reply: &mut Reply, mount: &Path) {
        if *self == Self::Host {
            return;
        }
        match reply {
            Reply::Refused(refusal) => self.put_refusal(refusal, mount),
            Reply::Verified(VerdictReport::Foreign(why) | VerdictReport::Unreadable(why)) => {
                *why = self.text(why, "", mount);
            }
            Reply::Removed(removal) => {
                for (path, _) in &mut removal.leftover {
                    *path = self.path(path);
                }
            }
            Reply::Thawed(thawed) => {
                let paths = thawed.frozen_ancestor.iter_mut();
                for path in paths.chain(&mut thawed.frozen_beneath) {
                    *path = self.path(path);
                }
            }
            _ => {}
        }
    }

    /// Puts a refusal in its terms.
    pub(crate) fn put_refusal(&self, refusal: &mut Refusal, mount: &Path) {
        if *self != Self::Host {
            refusal.message = self.text(&refusal.message, &refusal.socket, mount);
        }
    }

    /// A cgroup as the container calls it. What lies above it has no other name there than its own root.
    fn path(&self, path: &CgroupPath) -> CgroupPath {
        self.inner(path).unwrap_or_else(CgroupPath::root)
    }

    fn inner(&self, path: &CgroupPath) -> Option<CgroupPath> {
        let Self::Outsider {
            container: Some(root),
            ..
        } = self
        else {
            return None;
        };
        CgroupPath::parse(&format!("/{}", path.strip(root)?)).ok()
    }

    /// `kept` is a path that it may have as it is.
    fn text(&self, text: &str, kept: &str, mount: &Path) -> String {
        let mut told = String::with_capacity(text.len());
        for word in text.split_inclusive(char::is_whitespace) {
            let is_number = told.ends_with("process ");
            let bare = word.trim_end();
            if is_number && let Some(number) = self.number(bare) {
                told.push_str(&number.to_string());
                told.push_str(&word[bare.len()..]);
            } else {
                self.put_word(&mut told, word, kept, mount);
            }
        }
        told
    }

    fn number(&self, word: &str) -> Option<Pid> {
        let Self::Outsider {
            numbers: Some((here, there)),
            ..
        } = self
        else {
            return None;
        };
        (word.parse() == Ok(here.get())).then_some(*there)
    }

    fn put_word(&self, told: &mut String, word: &str, kept: &str, mount: &Path) {
        let start = word.trim_start_matches(PUNCTUATION);
        let path = start.trim_end_matches(|c: char| c.is_whitespace() || PUNCTUATION.contains(&c));
        if !path.starts_with('/') || path == kept {
            told.push_str(word);
            return;
        }
        told.push_str(&word[..word.len() - start.len()]);
        match self.named(path, mount) {
            Some(inner) => told.push_str(inner.as_str()),
            None => told.push_str(HIDDEN),
        }
        told.push_str(&start[path.len()..]);
    }

    /// What it calls a path, whether that is told as a cgroup's or as the file's.
    fn named(&self, path: &str, mount: &Path) -> Option<CgroupPath> {
        let below = Path::new(path).strip_prefix(mount).ok();
        let cgroup = match below.and_then(Path::to_str) {
            Some(below) => CgroupPath::parse(&format!("/{below}")),
            None => CgroupPath::parse(path),
        };
        self.inner(&cgroup.ok()?)
    }
}

/// What may stand around a path in a sentence.
const PUNCTUATION: &[char] = &['"', '\'', '`', '(', ')', ',', ';', ':', '.'];

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "/system.slice/docker-12.scope";
    const MOUNT: &str = "/sys/fs/cgroup";

    fn path(text: &str) -> CgroupPath {
        CgroupPath::parse(text).unwrap()
    }

    fn container() -> Audience {
        Audience::Outsider {
            container: Some(path(ROOT)),
            numbers: Pid::new(4711).zip(Pid::new(7)),
        }
    }

    fn told(text: &str) -> String {
        container().text(text, "", Path::new(MOUNT))
    }

    #[test]
    fn its_own_cgroups_are_told_by_their_own_names_and_no_others_at_all() {
        for (text, expected) in [
            (
                format!("{ROOT}/cgleaf-s.leaf is frozen"),
                "/cgleaf-s.leaf is frozen",
            ),
            (
                format!("open {MOUNT}{ROOT}/a/cgroup.procs: EBUSY; go"),
                "open /a/cgroup.procs: EBUSY; go",
            ),
            (format!("it is in {ROOT}; no"), "it is in /; no"),
            (
                "/system.slice is frozen".to_owned(),
                "a path of the host is frozen",
            ),
            (
                format!("{ROOT}9/x (\"{MOUNT}/system.slice\")"),
                "a path of the host (\"a path of the host\")",
            ),
            (
                "cannot read /proc/4711/stat: EMFILE".to_owned(),
                "cannot read a path of the host: EMFILE",
            ),
            (format!("{ROOT}/../x"), "a path of the host"),
            (
                "process 4711 is in /; process 47111 and/or 4711".to_owned(),
                "process 7 is in a path of the host; process 47111 and/or 4711",
            ),
            (
                "read or write: 1/2 / none".to_owned(),
                "read or write: 1/2 a path of the host none",
            ),
        ] {
            assert_eq!(told(&text), expected);
        }
    }

    #[test]
    fn a_socket_that_it_is_to_ask_is_told() {
        let mut refusal = Refusal {
            socket: "/tmp/inner.sock".to_owned(),
            ..Refusal::new(
                cgleaf_shared::wire::RefusalCode::InsideSession,
                "it is at /tmp/inner.sock: nothing is moved",
            )
        };
        let before = refusal.message.clone();
        container().put_refusal(&mut refusal, Path::new(MOUNT));
        assert_eq!(refusal.message, before);
        assert!(container().sees(&path(&format!("{ROOT}/x"))) && !container().sees(&path("/x")));
    }

    #[test]
    fn the_host_is_told_everything_and_one_who_is_not_known_nothing() {
        let text = format!("{ROOT} is frozen");
        let mut reply = Reply::Verified(VerdictReport::Unreadable(text.clone()));
        Audience::Host.put(&mut reply, Path::new(MOUNT));
        assert_eq!(reply, Reply::Verified(VerdictReport::Unreadable(text)));
        Audience::unknown(Mode::NodeService).put(&mut reply, Path::new(MOUNT));
        let hidden = "a path of the host is frozen".to_owned();
        assert_eq!(reply, Reply::Verified(VerdictReport::Unreadable(hidden)));
        assert_eq!(Audience::unknown(Mode::Direct), Audience::Host);
    }

    #[test]
    fn cgroups_in_an_answer_are_its_own() {
        let mut reply = Reply::Thawed(cgleaf_shared::wire::Thawed {
            still_flagged: vec![],
            frozen_ancestor: Some(path("/system.slice")),
            frozen_beneath: vec![path(&format!("{ROOT}/a/b"))],
        });
        container().put(&mut reply, Path::new(MOUNT));
        let Reply::Thawed(thawed) = reply else {
            unreachable!()
        };
        assert_eq!(thawed.frozen_ancestor, Some(CgroupPath::root()));
        assert_eq!(thawed.frozen_beneath, [path("/a/b")]);
    }
}
