//! Removing a leaf: one pass, depth first. What cannot be removed yet is named, and who asked tries again.

use cgleaf_shared::IoError;
use cgleaf_shared::cgroup::{CgroupDir, CgroupPath};
use cgleaf_shared::wire::{Refusal, Removal, Reply, Target};

use super::Answer;
use crate::authorise::{self, Caller};
use crate::context::State;
use crate::leaf::MOST_CGROUPS;
use crate::refuse;
use crate::table::Row;
use crate::trace;
use crate::write;

/// How many cgroups that could not be removed are named.
const MOST_NAMED: usize = 32;

/// One pass of removal.
pub(super) fn remove(
    state: &mut State,
    caller: &Caller<'_>,
    target: &Target,
) -> Result<Answer, Refusal> {
    let (row, dir) = authorise::target(state, caller, target)?;
    let mut leftover = Vec::new();
    let beneath = remove_beneath(&dir, &row.leaf_path, &mut leftover)
        .map_err(|error| refuse::failed(&error))?;
    let removed = match remove_itself(state, &row.leaf_path) {
        Ok(()) => true,
        Err(error) if error.is_gone() => true,
        Err(error) => {
            note(&mut leftover, Some(row.leaf_path.clone()), &error);
            false
        }
    };
    trace::event!(&row.identity.session, "RemoveLeaf", "\"gone\":{removed}");
    forget_removed(state, &row.leaf_path, &beneath);
    Ok(Reply::Removed(Removal { removed, leftover }).into())
}

/// One pass without anybody who asks for it. Whether the leaf is gone, and its row with it.
pub(super) fn remove_all_of(state: &mut State, leaf: &CgroupPath) -> bool {
    // What stays is found by the removal of the leaf itself.
    let opened = state.context.root.open_path(leaf);
    let beneath = opened.and_then(|dir| remove_beneath(&dir, leaf, &mut Vec::new()));
    let gone = remove_leaf(state, leaf);
    forget_removed(state, leaf, &beneath.unwrap_or_default());
    gone
}

/// Removes what it can. What there was is told by its relative paths, the leaf itself (empty) among them.
fn remove_beneath(
    dir: &CgroupDir,
    leaf: &CgroupPath,
    leftover: &mut Vec<(CgroupPath, i32)>,
) -> Result<Vec<String>, IoError> {
    let beneath = dir.subtree(MOST_CGROUPS)?;
    for relative in beneath.iter().rev().filter(|relative| !relative.is_empty()) {
        if let Err(error) = remove_descendant(dir, relative) {
            note(leftover, leaf.join(relative).ok(), &error);
        }
    }
    Ok(beneath)
}

fn note(leftover: &mut Vec<(CgroupPath, i32)>, path: Option<CgroupPath>, error: &IoError) {
    if let Some(path) = path.filter(|_| !error.is_gone() && leftover.len() < MOST_NAMED) {
        leftover.push((path, error.errno().unwrap_or(0)));
    }
}

fn remove_descendant(dir: &CgroupDir, relative: &str) -> Result<(), IoError> {
    match relative.rsplit_once('/') {
        None => write::remove_dir(dir, relative),
        Some((parent, name)) => write::remove_dir(&dir.open_descendant(parent)?, name),
    }
}

fn remove_itself(state: &State, leaf: &CgroupPath) -> Result<(), IoError> {
    match (leaf.parent(), leaf.name()) {
        (Some(parent), Some(name)) => {
            write::remove_dir(&state.context.root.open_path(&parent)?, name)
        }
        // The hierarchy's root is never a leaf.
        _ => Ok(()),
    }
}

/// Removes a leaf that has nothing beneath it. Whether it is gone.
pub(super) fn remove_leaf(state: &State, leaf: &CgroupPath) -> bool {
    match remove_itself(state, leaf) {
        Ok(()) => true,
        Err(error) => error.is_gone(),
    }
}

/// Drops the rows of sessions at or beneath a leaf whose leaves are gone: nested ones went with it.
fn forget_removed(state: &mut State, leaf: &CgroupPath, beneath: &[String]) {
    let paths = beneath
        .iter()
        .filter_map(|relative| leaf.join(relative).ok());
    for path in std::iter::once(leaf.clone()).chain(paths) {
        let Some(key) = state.table.at(&path).map(Row::key) else {
            continue;
        };
        let opened = state.context.root.open_path(&path);
        if opened.is_err_and(|error| error.is_gone()) {
            state.forget(&key);
        }
    }
}
