//! What is to be started, and where helpers are looked for.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::Path;

use super::claim::Identity;
use crate::base::Base;

/// Where sockets and records lie, and what a helper that has to be started is given.
pub struct Site<'a> {
    /// Where things lie.
    pub base: &'a Base,
    /// The socket that was named, and no other.
    pub socket: Option<&'a Path>,
    /// A cgroup directory for the leaves of a helper that has to be started.
    pub scope_dir: Option<&'a Path>,
    /// A descriptor that stays open where cgleaf executes itself again, which is close-on-exec otherwise.
    pub kept_descriptor: Option<RawFd>,
    /// Where a line for people goes.
    pub notices: &'a dyn Fn(&str),
    /// Where a line goes that nobody may miss: something lives that was to be ended.
    pub trouble: &'a dyn Fn(&str),
}

impl Site<'_> {
    /// Says something to whoever started cgleaf.
    pub(super) fn notice(&self, text: &str) {
        (self.notices)(text);
    }

    /// The same, also to whoever wants no notices.
    pub(super) fn trouble(&self, text: &str) {
        (self.trouble)(text);
    }
}

/// Which tier is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TierWanted {
    /// A leaf where one can be had, else the group tier.
    #[default]
    Auto,
    /// A leaf or nothing.
    Cgroup,
    /// The group tier.
    Group,
}

/// What is to be started.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The id and the name.
    pub identity: Identity,
    /// The session, by id or name, inside which it is to be.
    pub parent: Option<String>,
    /// The tier.
    pub tier: TierWanted,
    /// The program and its arguments.
    pub words: Vec<OsString>,
}
