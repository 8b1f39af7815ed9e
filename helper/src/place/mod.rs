//! Where a caller's leaf goes, and which domain it acts in: rules 1 to 4 of DESIGN 3.1 over what was found out about
//! the caller. Nothing is read here.

mod pattern;

use cgleaf_shared::cgroup::CgroupPath;
use cgleaf_shared::id::Uid;
use cgleaf_shared::wire::Mode;

pub(crate) use pattern::{Pattern, container_root};

/// Authority is (uid, domain). Scope directories that one helper serves are one domain to those who may ask.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Domain {
    /// The helper's scope directories.
    Scope,
    /// A container, by its own cgroup.
    Container(CgroupPath),
}

/// What was found out about a caller.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// Its uid, by its connection.
    pub(crate) uid: Uid,
    /// Its cgroup.
    pub(crate) cgroup: CgroupPath,
    /// Whether its pid namespace lies deeper than the helper's.
    pub(crate) deeper: bool,
    /// Whether a container around it, by the names of its cgroups, is one: nobody else may make cgroups there.
    pub(crate) container_is_genuine: bool,
    /// The innermost leaf around it.
    pub(crate) inside: Option<Inside>,
}

/// The leaf that a caller is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inside {
    /// Where it is.
    pub(crate) leaf: CgroupPath,
    /// Its domain, where it is one of this helper's.
    pub(crate) ours: Option<Domain>,
    /// The socket of the helper that made it.
    pub(crate) socket: String,
}

/// What this helper serves.
#[derive(Debug)]
pub(crate) struct Rules {
    /// How it was started.
    pub(crate) mode: Mode,
    /// Whom it serves: its own user, or the one it was started for.
    pub(crate) uid: Uid,
    /// The slice of that user, where there is one above the scope directory.
    pub(crate) slice: Option<CgroupPath>,
    /// Beneath which cgroups callers are served in place.
    pub(crate) container_roots: Vec<Pattern>,
    /// What is known to be a container's, for refusing it where it is not served in place.
    pub(crate) known_roots: Vec<Pattern>,
    /// The helper's own cgroup.
    pub(crate) own_cgroup: CgroupPath,
}

/// Where a leaf goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Beneath a leaf of ours (rule 1).
    Leaf(CgroupPath, Domain),
    /// Beneath a container's own cgroup (rule 2).
    Container(CgroupPath),
    /// Beneath the scope directory (rule 3).
    Scope,
}

impl Place {
    /// The domain that it belongs to.
    pub(crate) fn domain(&self) -> Domain {
        match self {
            Self::Leaf(_, domain) => domain.clone(),
            Self::Container(root) => Domain::Container(root.clone()),
            Self::Scope => Domain::Scope,
        }
    }
}

/// Why there is no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// Inside a session of another helper: ask that one, at this socket.
    OtherHelpers {
        /// The leaf.
        leaf: CgroupPath,
        /// Its socket; it may be empty.
        socket: String,
    },
    /// The helper serves nobody there; why, as the end of a sentence.
    NotServed(String),
}

fn not_served<T>(why: impl Into<String>) -> Result<T, NoPlace> {
    Err(NoPlace::NotServed(why.into()))
}

/// Where a new leaf of this caller's goes.
pub(crate) fn place(facts: &Facts, rules: &Rules) -> Result<Place, NoPlace> {
    let container = served_container(facts, rules)?;
    if facts.deeper && container.is_none() {
        return not_served(
            "it is in a pid namespace of its own, outside every container that is served",
        );
    }
    if let Some(inside) = &facts.inside {
        return match &inside.ours {
            Some(domain) => Ok(Place::Leaf(inside.leaf.clone(), domain.clone())),
            None => Err(NoPlace::OtherHelpers {
                leaf: inside.leaf.clone(),
                socket: inside.socket.clone(),
            }),
        };
    }
    if let Some(root) = container {
        return Ok(Place::Container(root));
    }
    served_outside_containers(facts, rules).map(|()| Place::Scope)
}

/// The domain whose sessions this caller may see and control, if they are its uid's.
pub(crate) fn domain(facts: &Facts, rules: &Rules) -> Result<Domain, NoPlace> {
    // A leaf of another helper says nothing about what its members may ask here: their place does.
    let ours = facts.inside.clone().filter(|inside| inside.ours.is_some());
    let facts = Facts {
        inside: ours,
        ..facts.clone()
    };
    place(&facts, rules).map(|place| place.domain())
}

/// Root outside every container may control every session. In a container it is root of that container alone.
pub(crate) fn is_host_root(facts: &Facts, rules: &Rules) -> bool {
    facts.uid == Uid::ROOT
        && !facts.deeper
        && container_root(&rules.container_roots, &facts.cgroup).is_none()
        && foreign_container(facts, rules).is_none()
}

/// The container that a caller is in and the helper is not, whether it is served there or not.
pub(crate) fn container_around(facts: &Facts, rules: &Rules) -> Option<CgroupPath> {
    container_root(&rules.container_roots, &facts.cgroup)
        .filter(|root| !rules.own_cgroup.is_within(root))
        .or_else(|| foreign_container(facts, rules))
}

/// Rule 2's container, where the caller is in one.
fn served_container(facts: &Facts, rules: &Rules) -> Result<Option<CgroupPath>, NoPlace> {
    match container_root(&rules.container_roots, &facts.cgroup) {
        Some(root) if rules.own_cgroup.is_within(&root) => {
            not_served(format!("the container root {root} holds the helper itself"))
        }
        Some(root) if !facts.container_is_genuine => not_served(format!(
            "a cgroup around it, {root}, only has the name of a container: it lies where others than root may make what they like"
        )),
        other => Ok(other),
    }
}

/// A container that is not served in place and does not hold the helper itself.
fn foreign_container(facts: &Facts, rules: &Rules) -> Option<CgroupPath> {
    container_root(&rules.known_roots, &facts.cgroup)
        .filter(|root| !rules.own_cgroup.is_within(root))
}

/// Rule 3.
fn served_outside_containers(facts: &Facts, rules: &Rules) -> Result<(), NoPlace> {
    if let Some(root) = foreign_container(facts, rules) {
        return not_served(format!("it is in the container {root}"));
    }
    let right_uid = || {
        if facts.uid == rules.uid {
            Ok(())
        } else {
            not_served(format!(
                "this helper serves uid {}, not uid {}",
                rules.uid, facts.uid
            ))
        }
    };
    match rules.mode {
        Mode::NodeService => not_served("the node service serves containers only"),
        // Whoever the kernel lets it move, which is everyone where it runs as root.
        Mode::Direct if rules.uid == Uid::ROOT => Ok(()),
        Mode::Direct => right_uid(),
        Mode::Scope | Mode::UserService if rules.uid == Uid::ROOT => right_uid(),
        Mode::Scope | Mode::UserService | Mode::SystemService => {
            right_uid()?;
            in_slice(facts, rules)
        }
    }
}

fn in_slice(facts: &Facts, rules: &Rules) -> Result<(), NoPlace> {
    match &rules.slice {
        Some(slice) if facts.cgroup.is_within(slice) => Ok(()),
        Some(slice) => not_served(format!("its cgroup lies outside {slice}")),
        None => not_served(format!(
            "the helper itself is not in the slice of uid {}",
            rules.uid
        )),
    }
}

/// The slice of a user around a path: the ancestor called `user-UID.slice`.
pub(crate) fn user_slice(path: &CgroupPath, uid: Uid) -> Option<CgroupPath> {
    let name = format!("user-{uid}.slice");
    path.ancestors()
        .find(|ancestor| ancestor.name() == Some(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> CgroupPath {
        CgroupPath::parse(text).unwrap()
    }

    fn rules(mode: Mode, uid: u32) -> Rules {
        let own = match (mode, uid) {
            (Mode::SystemService, _) => {
                "/user.slice/user-1000.slice/cgleaf-helper@1000.service/helper"
            }
            (Mode::NodeService, _) => "/system.slice/cgleaf-helper-node.service/helper",
            (_, 0) => "/system.slice/cgleaf-helper-0.scope/helper",
            _ => "/user.slice/user-1000.slice/user@1000.service/app.slice/cgleaf.scope/helper",
        };
        let node = mode == Mode::NodeService;
        Rules {
            mode,
            uid: Uid(uid),
            slice: user_slice(&path(own), Uid(uid)),
            container_roots: if node { Pattern::known() } else { Vec::new() },
            known_roots: Pattern::known(),
            own_cgroup: path(own),
        }
    }

    fn facts(uid: u32, cgroup: &str) -> Facts {
        Facts {
            uid: Uid(uid),
            cgroup: path(cgroup),
            deeper: false,
            container_is_genuine: true,
            inside: None,
        }
    }

    fn within(facts: Facts, leaf: &str, ours: Option<Domain>) -> Facts {
        let inside = Some(Inside {
            leaf: path(leaf),
            ours,
            socket: "/their.sock".to_owned(),
        });
        Facts { inside, ..facts }
    }

    fn deeper(facts: Facts) -> Facts {
        Facts {
            deeper: true,
            ..facts
        }
    }

    const USER: &str = "/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope";
    const LOGIN: &str = "/user.slice/user-1000.slice/session-3.scope";
    const OTHER_USER: &str = "/user.slice/user-1001.slice/session-4.scope";
    const SERVICE: &str = "/system.slice/cron.service";
    const DOCKER: &str = "/system.slice/docker-0123abcd.scope";
    const LEAF: &str =
        "/user.slice/user-1000.slice/user@1000.service/app.slice/cgleaf.scope/cgleaf-s.leaf";

    /// `Ok` of what the place is, or a word of why there is none.
    fn told(facts: &Facts, rules: &Rules) -> String {
        match place(facts, rules) {
            Ok(Place::Leaf(leaf, _)) => format!("leaf {leaf}"),
            Ok(Place::Container(root)) => format!("container {root}"),
            Ok(Place::Scope) => "scope".to_owned(),
            Err(NoPlace::OtherHelpers { socket, .. }) => format!("ask {socket}"),
            Err(NoPlace::NotServed(_)) => "refused".to_owned(),
        }
    }

    #[test]
    fn the_rules_as_a_table() {
        let in_ours = |uid, cgroup| within(facts(uid, cgroup), LEAF, Some(Domain::Scope));
        let below = format!("{LEAF}/sub");
        let docker_in = format!("{DOCKER}/inner");
        let cases: Vec<(Mode, u32, Facts, String)> = vec![
            // Rule 3, and 4 for what it leaves.
            (Mode::Scope, 1000, facts(1000, USER), "scope".into()),
            (Mode::Scope, 1000, facts(1000, LOGIN), "scope".into()),
            (Mode::UserService, 1000, facts(1000, LOGIN), "scope".into()),
            (
                Mode::SystemService,
                1000,
                facts(1000, LOGIN),
                "scope".into(),
            ),
            (Mode::Scope, 1000, facts(1000, OTHER_USER), "refused".into()),
            (Mode::Scope, 1000, facts(1000, SERVICE), "refused".into()),
            (Mode::Scope, 1000, facts(1001, USER), "refused".into()),
            (Mode::Scope, 1000, facts(0, USER), "refused".into()),
            (
                Mode::SystemService,
                1000,
                facts(1001, LOGIN),
                "refused".into(),
            ),
            (
                Mode::SystemService,
                1000,
                facts(1000, SERVICE),
                "refused".into(),
            ),
            (Mode::Scope, 0, facts(0, SERVICE), "scope".into()),
            (Mode::Scope, 0, facts(0, OTHER_USER), "scope".into()),
            (Mode::Scope, 0, facts(1000, LOGIN), "refused".into()),
            (Mode::Scope, 0, facts(0, DOCKER), "refused".into()),
            (Mode::Direct, 1000, facts(1000, SERVICE), "scope".into()),
            (Mode::Direct, 1000, facts(1001, SERVICE), "refused".into()),
            (Mode::Direct, 0, facts(1001, "/"), "scope".into()),
            (Mode::Direct, 0, facts(0, DOCKER), "refused".into()),
            // Rule 2.
            (
                Mode::NodeService,
                0,
                facts(0, DOCKER),
                format!("container {DOCKER}"),
            ),
            (
                Mode::NodeService,
                0,
                deeper(facts(1000, &docker_in)),
                format!("container {DOCKER}"),
            ),
            (Mode::NodeService, 0, facts(0, SERVICE), "refused".into()),
            (
                Mode::NodeService,
                0,
                deeper(facts(0, SERVICE)),
                "refused".into(),
            ),
            (
                Mode::SystemService,
                1000,
                facts(1000, DOCKER),
                "refused".into(),
            ),
            // Rule 1, which goes first.
            (
                Mode::Scope,
                1000,
                in_ours(1000, LEAF),
                format!("leaf {LEAF}"),
            ),
            (
                Mode::Scope,
                1000,
                in_ours(1000, &below),
                format!("leaf {LEAF}"),
            ),
            (
                Mode::Scope,
                1000,
                within(facts(1000, USER), USER, None),
                "ask /their.sock".into(),
            ),
            (
                Mode::NodeService,
                0,
                within(facts(0, DOCKER), DOCKER, None),
                "ask /their.sock".into(),
            ),
            // Rule 4: deeper than the helper, outside every container root.
            (
                Mode::Scope,
                1000,
                deeper(facts(1000, USER)),
                "refused".into(),
            ),
            (
                Mode::Scope,
                1000,
                deeper(in_ours(1000, LEAF)),
                "refused".into(),
            ),
            (Mode::Direct, 0, deeper(facts(0, "/")), "refused".into()),
        ];
        for (mode, uid, facts, expected) in cases {
            let rules = rules(mode, uid);
            assert_eq!(
                told(&facts, &rules),
                expected,
                "{mode:?} of uid {uid}: {facts:?}"
            );
        }
    }

    #[test]
    fn a_container_that_holds_the_helper_is_no_container_to_it() {
        let own = path("/docker/abc/cgleaf.scope/helper");
        let mut inner = rules(Mode::Direct, 0);
        inner.own_cgroup = own.clone();
        assert_eq!(told(&facts(0, "/docker/abc"), &inner), "scope");
        assert!(is_host_root(&facts(0, "/docker/abc"), &inner));
        assert_eq!(told(&facts(0, "/docker/def"), &inner), "refused");
        let mut node = rules(Mode::NodeService, 0);
        node.own_cgroup = own;
        assert_eq!(told(&facts(0, "/docker/abc"), &node), "refused");
        assert_eq!(
            told(&facts(0, "/docker/def"), &node),
            "container /docker/def"
        );
    }

    #[test]
    fn a_member_of_anothers_session_may_still_ask_for_its_own() {
        let rules = rules(Mode::Scope, 1000);
        let inside = within(facts(1000, USER), USER, None);
        assert_eq!(domain(&inside, &rules), Ok(Domain::Scope));
        assert!(domain(&facts(1000, SERVICE), &rules).is_err());
    }

    #[test]
    fn roots_override_ends_at_a_container() {
        for (mode, facts, expected) in [
            (Mode::NodeService, facts(0, SERVICE), true),
            (Mode::NodeService, facts(0, DOCKER), false),
            (Mode::NodeService, deeper(facts(0, SERVICE)), false),
            (Mode::Scope, facts(0, SERVICE), true),
            (Mode::Scope, facts(0, DOCKER), false),
            (Mode::Scope, facts(1000, SERVICE), false),
        ] {
            assert_eq!(
                is_host_root(&facts, &rules(mode, 0)),
                expected,
                "{mode:?} {facts:?}"
            );
        }
    }
}
