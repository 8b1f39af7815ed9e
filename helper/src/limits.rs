//! Which limit a cgroup could not be made for: the kernel answers EAGAIN for either, wherever above it stands (cgroup-v2.rst).

use cgleaf_shared::cgroup::{CgroupDir, CgroupRoot, ControlFile};

/// The files of the limits that leave no room beneath `parent`, each with its value; where none of them is found to be reached, as
/// when one has been freed meanwhile, all that stand above it.
pub(crate) fn above(root: &CgroupRoot, parent: &CgroupDir) -> String {
    let limits = standing_above(root, parent);
    let reached = limits.iter().any(|limit| limit.reached);
    let shown: Vec<&str> = limits
        .iter()
        .filter(|limit| limit.reached || !reached)
        .map(|limit| limit.shown.as_str())
        .collect();
    if shown.is_empty() {
        "cgroup.max.descendants or cgroup.max.depth above it".to_owned()
    } else {
        shown.join(" or ")
    }
}

/// What to do next, by what [`above`] told: no end of another session gives room beneath one that lies too deep.
pub(crate) fn what_gives_room(limits: &str) -> &'static str {
    if limits.contains(ControlFile::MaxDescendants.name()) {
        "destroy sessions, or `cgleaf gc` those that are over, or raise it"
    } else {
        "raise it, or begin the session outside of the one around it"
    }
}

struct Limit {
    shown: String,
    reached: bool,
}

fn standing_above(root: &CgroupRoot, parent: &CgroupDir) -> Vec<Limit> {
    let mut found = Vec::new();
    for (depth, path) in (1..).zip(parent.path().ancestors()) {
        let Ok(dir) = root.open_path(&path) else {
            continue;
        };
        let mut note = |file: ControlFile, used: Option<u64>, room_for_one: bool| {
            if let Some(most) = number(&dir, file) {
                found.push(Limit {
                    shown: format!("{} = {most}", dir.shown().join(file.name()).display()),
                    reached: used
                        .is_some_and(|used| used > most || (!room_for_one && used == most)),
                });
            }
        };
        note(ControlFile::MaxDescendants, descendants(&dir), false);
        note(ControlFile::MaxDepth, Some(depth), true);
    }
    found
}

/// A limit's number; `None` for `max`, and where there is no such file.
fn number(dir: &CgroupDir, file: ControlFile) -> Option<u64> {
    text(dir, file)?.trim_ascii().parse().ok()
}

fn descendants(dir: &CgroupDir) -> Option<u64> {
    let stat = text(dir, ControlFile::Stat)?;
    let mut lines = stat.lines();
    lines.find_map(|line| line.strip_prefix("nr_descendants ")?.parse().ok())
}

fn text(dir: &CgroupDir, file: ControlFile) -> Option<String> {
    String::from_utf8(dir.read(file).ok()?).ok()
}
