//! The table, read from the tree: after a restart, and after a take-over.

use std::rc::Rc;

use cgleaf_shared::IoError;
use cgleaf_shared::cgroup::{CgroupDir, attributes, session_of_leaf_name};
use cgleaf_shared::wire::Mode;

use crate::attrs;
use crate::context::Context;
use crate::leaf;
use crate::log;
use crate::place::{Domain, container_root};
use crate::table::{DomainDir, Key, Row, Table};
use crate::trace;
use crate::write;

/// How deep sessions may lie in one another.
const MOST_DEPTH: usize = 32;
/// How many cgroups the node service looks at to find containers.
const MOST_LOOKED_AT: usize = 100_000;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) table: Table,
    /// The sessions that ended with a connection of the helper before this one.
    pub(crate) leased: Vec<Key>,
    /// Those to which nobody came whom the helper before this one told of it: whoever asked for it has lost the connection,
    /// and gives up.
    pub(crate) leaderless: Vec<Key>,
}

/// Reads every session out of the scope directories and, in the node service, out of the containers.
pub(crate) fn rebuild(context: &Context) -> Found {
    let mut found = Found::default();
    for scope in &context.scopes {
        read_leaves(context, &scope.dir, &scope.domain, MOST_DEPTH, &mut found);
    }
    if context.mode == Mode::NodeService || !context.rules.container_roots.is_empty() {
        read_containers(context, &mut found);
    }
    found
}

/// Containers' own cgroups, wherever they lie.
fn read_containers(context: &Context, found: &mut Found) {
    let all = context
        .root
        .dir()
        .subtree(MOST_LOOKED_AT)
        .unwrap_or_default();
    for relative in all.iter().filter(|relative| !relative.is_empty()) {
        let Ok(dir) = context.root.dir().open_descendant(relative) else {
            continue;
        };
        let is_root = container_root(&context.rules.container_roots, dir.path())
            .is_some_and(|root| root == *dir.path());
        let holds_helper = context.rules.own_cgroup.is_within(dir.path());
        if !is_root || holds_helper {
            continue;
        }
        let Ok(id) = dir.id() else { continue };
        let domain = Rc::new(DomainDir {
            domain: Domain::Container(dir.path().clone()),
            path: dir.path().clone(),
            id,
        });
        read_leaves(context, &dir, &domain, MOST_DEPTH, found);
    }
}

/// The leaves directly beneath a directory, and those directly beneath each of them.
fn read_leaves(
    context: &Context,
    parent: &CgroupDir,
    domain: &Rc<DomainDir>,
    depth: usize,
    found: &mut Found,
) {
    let names = match parent.children() {
        Ok(names) => names,
        Err(error) => return log::line(format_args!("{error}")),
    };
    for name in names {
        let Some(session) = session_of_leaf_name(&name) else {
            continue;
        };
        let dir = match parent.open_child(&name) {
            Ok(dir) => dir,
            Err(error) => {
                log::line(format_args!("{error}"));
                continue;
            }
        };
        match read_leaf(context, &dir, domain) {
            Ok(Some(row)) if row.identity.session == session => {
                if attrs::is_leased(&dir).unwrap_or(false) {
                    found.leased.push(row.key());
                }
                if attrs::leader(&dir).is_ok_and(|leader| leader.is_none()) {
                    found.leaderless.push(row.key());
                }
                found.table.insert(row);
                if depth > 0 {
                    read_leaves(context, &dir, domain, depth - 1, found);
                }
            }
            Ok(_) => half_made(parent, &name),
            Err(error) => log::line(format_args!("{error}")),
        }
    }
}

/// A leaf without its session: a helper ended while it made it. Nobody was told of it, so that it goes if it is empty.
fn half_made(parent: &CgroupDir, name: &str) {
    if let Err(error) = write::remove_dir(parent, name) {
        log::line(format_args!(
            "a leaf without a session, which stays: {error}"
        ));
    }
}

/// One leaf: its session, with what belonged to the former helper's connections taken off.
fn read_leaf(
    context: &Context,
    dir: &CgroupDir,
    domain: &Rc<DomainDir>,
) -> Result<Option<Row>, IoError> {
    let Some(identity) = attrs::identity(dir)? else {
        return Ok(None);
    };
    trace::event!(&identity.session, "HelperStart");
    leaf::drop_hold(&identity.session, dir)?;
    // Whoever is inside asks here from now on.
    if dir.attribute_text(attributes::SOCKET)?.as_deref() != Some(context.socket.as_str()) {
        write::set_attribute(dir, attributes::SOCKET, &context.socket)?;
    }
    Ok(Some(Row {
        leaf_path: dir.path().clone(),
        leaf_id: dir.id()?,
        identity,
        domain: domain.clone(),
    }))
}
