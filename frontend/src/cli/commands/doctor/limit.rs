//! A limit on cgroups (cgroup-v2.rst), as a helper names it that has reached one.

use std::path::{Path, PathBuf};

use cgleaf_shared::cgroup::ControlFile;
use nix::unistd::{AccessFlags, access};

use super::words::shell;

/// The files of the limits that are reached, as far as they are named by their paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Limit {
    files: Vec<PathBuf>,
    /// Whether only the depth is: no end of another session gives room then.
    is_of_depth: bool,
}

impl Limit {
    /// The one that is named there, if one is: `/path/cgroup.max.descendants = 4 is reached`, several of them with "or" between them.
    pub(super) fn named_in(reason: &str) -> Option<Self> {
        let names = [ControlFile::MaxDescendants, ControlFile::MaxDepth].map(ControlFile::name);
        let [descendants, depth] = names.map(|name| reason.contains(name));
        if !descendants && !depth {
            return None;
        }
        Some(Self {
            files: reason.split(" = ").filter_map(file_at_the_end).collect(),
            is_of_depth: !descendants,
        })
    }

    /// What gives room.
    pub(super) fn advice(&self) -> String {
        let raise = match self.files.as_slice() {
            [] => "raise that limit: write a greater number, or `max`, into cgroup.max.descendants or cgroup.max.depth of the cgroup that \
                   is named above, or of the one above it that has the limit"
                .to_owned(),
            files => {
                let commands: Vec<String> = files.iter().map(|file| raised(file)).collect();
                format!("raise that limit: {}", commands.join(" and "))
            }
        };
        let room = if self.is_of_depth {
            "where this process is in a session, leave that: the sessions in a session lie beneath it"
        } else {
            "make room: destroy sessions, or `cgleaf gc` those that are over"
        };
        format!("{raise}; or {room}")
    }
}

fn raised(file: &Path) -> String {
    let by_whom = match access(file, AccessFlags::W_OK) {
        Ok(()) => "",
        Err(_) => " (as root)",
    };
    format!("`echo max >{}`{by_whom}", shell(file))
}

/// The path that a text ends with, if it is a limit's: there its value follows.
fn file_at_the_end(text: &str) -> Option<PathBuf> {
    let [descendants, depth] =
        [ControlFile::MaxDescendants, ControlFile::MaxDepth].map(ControlFile::name);
    if !text.ends_with(descendants) && !text.ends_with(depth) {
        return None;
    }
    let start = text.rfind(" /").map_or(0, |at| at + 1);
    let path = Path::new(&text[start..]);
    path.is_absolute().then(|| path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_that_is_named_is_raised_by_its_file() {
        let reason = "make /c/x.leaf: Resource temporarily unavailable (os error 11); /c/cgroup.max.descendants = 4 or \
                      /c d/cgroup.max.depth = 1 is reached: destroy sessions";
        let advice = Limit::named_in(reason).unwrap().advice();
        for part in [
            "`echo max >/c/cgroup.max.descendants`",
            "`echo max >'/c d/cgroup.max.depth'`",
            "`cgleaf gc`",
        ] {
            assert!(advice.contains(part), "{advice}");
        }
        let advice = Limit::named_in("/c/cgroup.max.depth = 1 leaves no room")
            .unwrap()
            .advice();
        assert!(!advice.contains("gc"), "{advice}");
        let unnamed =
            Limit::named_in("cgroup.max.descendants or cgroup.max.depth above it is reached");
        assert!(unnamed.unwrap().advice().contains("named above"));
        assert_eq!(Limit::named_in("Resource temporarily unavailable"), None);
    }
}
