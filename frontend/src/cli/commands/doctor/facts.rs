//! What of the surroundings decides how a leaf could be had.

use std::path::{Path, PathBuf};

use cgleaf_shared::cgroup::{CgroupPath, Layout, cgroup2_mounts, layout, own_mountinfo, own_path};
use cgleaf_shared::id::Uid;

use super::super::super::context::Context;
use super::cause::Cause;
use super::checks::is_another_namespace;
use super::named::Named;
use super::place::Place;
use super::restrictions::Restrictions;
use super::settings::Settings;
use super::systemd;
use super::unit::Unit;
use crate::launch::takes_connections;

/// What was found.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) uid: Uid,
    pub(super) layout: Layout,
    /// Where cgroup2 is mounted.
    pub(super) mount: Option<PathBuf>,
    /// The cgroup of this process.
    pub(super) own: Option<CgroupPath>,
    pub(super) container: bool,
    pub(super) systemd: bool,
    pub(super) user_manager: bool,
    /// The service that this process is in.
    pub(super) unit: Option<Unit>,
    /// What its manager says of that one.
    pub(super) settings: Settings,
    /// What its unit's settings, or whoever else made its mounts, take away.
    pub(super) restrictions: Restrictions,
    pub(super) socket_named: bool,
    /// The scope directory that was named, and how it stands.
    pub(super) scope_dir: Option<(PathBuf, Named)>,
    /// What keeps a leaf away, where that is known.
    pub(super) cause: Option<Cause>,
    /// The places of ours that cannot be used.
    pub(super) places: Vec<Place>,
}

impl Facts {
    /// Those of this process, and what the helper answered it.
    pub(super) fn of_this_place(context: &Context, reason: &str) -> Self {
        let mounts = own_mountinfo().unwrap_or_default();
        let first = cgroup2_mounts(&mounts).into_iter().next();
        let uid = Uid::effective();
        let own = own_path().ok();
        let systemd = systemd::is_around(own.as_ref());
        let mount = first.as_ref().map(|mount| mount.point.clone());
        let mut restrictions = Restrictions::here(&mounts);
        // Whoever is in the group that may see all, as root is, is not kept from it.
        restrictions.hidden_processes &= uid != Uid::ROOT || reason.contains("hidepid");
        let unit = Unit::around(own.as_ref(), mount.as_deref()).filter(|_| systemd);
        let container = !systemd && is_container(first.as_ref().is_some_and(|m| m.read_only));
        let variable = std::env::var_os("CGLEAF_SOCKET").is_some_and(|value| !value.is_empty());
        let named = |directory: &Path| {
            let is_inside = is_beneath(own.as_ref(), mount.as_deref(), directory);
            Named::find(uid, directory, mount.as_deref(), reason, is_inside)
        };
        Self {
            scope_dir: context
                .scope_dir
                .as_deref()
                .map(|directory| (directory.to_path_buf(), named(directory))),
            cause: Cause::find(
                &context.base,
                context.scope_dir.as_deref(),
                reason,
                container,
            ),
            places: Place::in_the_way(&context.base),
            settings: unit.as_ref().map(Settings::of).unwrap_or_default(),
            uid,
            layout: layout(&mounts),
            container,
            unit,
            mount,
            own,
            restrictions,
            systemd,
            user_manager: uid != Uid::ROOT && takes_connections(&systemd::user_manager_socket(uid)),
            socket_named: context.socket.is_some() || variable,
        }
    }

    /// A cgroup's directory.
    pub(super) fn in_the_mount(&self, path: &CgroupPath) -> String {
        let mount = self.mount.as_deref().unwrap_or(Path::new("/sys/fs/cgroup"));
        if path.is_root() {
            return mount.display().to_string();
        }
        mount.join(path.relative()).display().to_string()
    }
}

fn is_beneath(own: Option<&CgroupPath>, mount: Option<&Path>, directory: &Path) -> bool {
    match (own, mount) {
        (Some(own), Some(mount)) => mount.join(own.relative()).starts_with(directory),
        _ => false,
    }
}

/// No kernel says so: a read-only cgroup2 is what container managers give, and the files and the variable are theirs. What an image
/// has left behind on a machine makes none of it, nor does a user namespace, or a pid namespace without a /proc of its own.
fn is_container(read_only: bool) -> bool {
    let marks = [
        "/.dockerenv",
        "/run/.containerenv",
        "/run/systemd/container",
    ];
    let variables = ["container", "KUBERNETES_SERVICE_HOST"];
    let is_marked = marks.iter().any(|mark| Path::new(mark).exists())
        || variables
            .iter()
            .any(|name| std::env::var_os(name).is_some());
    let is_apart = ["cgroup", "uts", "ipc"]
        .into_iter()
        .any(is_another_namespace)
        || (is_another_namespace("pid") && !super::proc::is_of_another_namespace());
    read_only || (is_marked && is_apart)
}
