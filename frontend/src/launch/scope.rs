//! The way out of a login session's scope, from which the user's helper cannot move anybody: the cgroup above both is
//! root's (EACCES). The frontend executes itself again under `systemd-run --user --scope`, and enrols from there (DESIGN 4).

use std::ffi::OsString;

use cgleaf_shared::cgroup::{CgroupPath, own_path, path_of};
use cgleaf_shared::id::SessionId;
use cgleaf_shared::wire::Refusal;

use super::Site;
use super::exec::restore_signals;
use super::machine::{systemd_is_init, tool, user_runtime_directory};
use super::named_directory::is_inside_a_session;
use super::program::{IN_SCOPE_VARIABLE, SCOPE_ADDED_VARIABLE, c_string, c_strings};
use crate::client::refused;
use crate::error::{Error, Result};
use crate::operations;
use crate::sys::{self, Disposition, Image};

/// What systemd-run needs, or adds, and the program must not see unless its caller had it.
const ADDED: [&str; 3] = ["XDG_RUNTIME_DIR", "INVOCATION_ID", "SYSTEMD_EXEC_PID"];

/// Executes this process again in a scope of its own. It comes back only if that may not, or cannot, be done: always with
/// the reason. No leaf can be had from here then.
pub(super) fn enter_one(site: &Site<'_>, session: &str, refusal: &Refusal) -> Error {
    match image(session, refusal) {
        Ok(image) => {
            if let Some(number) = site.kept_descriptor {
                let _ = sys::set_close_on_exec(number, false);
            }
            if let Some(unit) = service_left() {
                site.notice(&leaves(&unit));
            }
            operations::tell(|| {
                "execve(2): systemd-run --user --scope, for a scope that this process may be moved from".to_owned()
            });
            restore_signals();
            let error = image.execute();
            // Back again, as this process was.
            sys::set_disposition(libc::SIGPIPE, Disposition::Ignore);
            if let Some(number) = site.kept_descriptor.filter(|number| *number > 2) {
                let _ = sys::set_close_on_exec(number, true);
            }
            refused(refusal).while_doing(format!("execute systemd-run: {error}"))
        }
        Err(error) => error,
    }
}

/// The session whose claim this process made before it was executed again, if it was.
pub(super) fn entered_for() -> Option<SessionId> {
    std::env::var(IN_SCOPE_VARIABLE).ok()?.parse().ok()
}

fn image(session: &str, refusal: &Refusal) -> Result<Image> {
    if entered_for().is_some() {
        return Err(refused(refusal).while_doing(
            "this process is in a scope of its own already, and still cannot be moved",
        ));
    }
    if !systemd_is_init() {
        return Err(refused(refusal));
    }
    if !lies_in_a_users_slice(&own_path()?) {
        // A service of the system, whose limits and `stop` hold for what it starts: nobody has asked to leave it.
        return Err(refused(refusal));
    }
    if user_runtime_directory().is_none() {
        return Err(refused(refusal).followed_by(
            "and there is no user manager that answers, and could move this process",
        ));
    }
    if is_inside_a_session()? {
        // systemd would take this process out of the session that it is in, which nothing may.
        return Err(refused(refusal).while_doing("this process is inside a session already"));
    }
    let mut words: Vec<OsString> = vec![tool("systemd-run")?.into()];
    words.extend(
        [
            "--user",
            "--scope",
            "--quiet",
            "--collect",
            "--description=on the way into a session of cgleaf",
            "--",
        ]
        .map(OsString::from),
    );
    words.push(own_program().into());
    words.extend(std::env::args_os().skip(1));
    let path = c_string(words.first().cloned().unwrap_or_default())?;
    Ok(Image::new(
        path,
        c_strings(words)?,
        c_strings(environment(session))?,
    ))
}

/// The service that this process, and so what is started, leaves by that: it is its main process, and was not only started by it, as
/// a helper judges it too, which would find it in no service any more.
fn service_left() -> Option<String> {
    let service = own_path().ok()?.service()?;
    let parent = path_of(&format!("/proc/{}", nix::unistd::getppid()));
    let is_main = !parent.is_ok_and(|parent| parent.is_within(&service));
    service.name().filter(|_| is_main).map(str::to_owned)
}

/// What is said of whoever leaves a service.
pub(super) fn leaves(unit: &str) -> String {
    format!("this process leaves {unit}: that unit's limits, filters and `stop` no longer cover it")
}

/// Where a login's scopes lie, and all that a user's own manager has (systemd.special(7), `user-UID.slice`).
fn lies_in_a_users_slice(path: &CgroupPath) -> bool {
    let is_a_users = |name: &str| name.starts_with("user-") && name.ends_with(".slice");
    path.ancestors()
        .any(|one| one.name().is_some_and(is_a_users))
}

fn own_program() -> std::path::PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into())
}

fn environment(session: &str) -> Vec<OsString> {
    let mut all: Vec<OsString> = std::env::vars_os()
        .map(|(name, value)| {
            let mut entry = name;
            entry.push("=");
            entry.push(value);
            entry
        })
        .collect();
    all.push(format!("{IN_SCOPE_VARIABLE}={session}").into());
    let added: Vec<&str> = ADDED
        .into_iter()
        .filter(|name| std::env::var_os(name).is_none())
        .collect();
    all.push(format!("{SCOPE_ADDED_VARIABLE}={}", added.join(",")).into());
    if std::env::var_os("XDG_RUNTIME_DIR").is_none()
        && let Some(directory) = user_runtime_directory()
    {
        let mut entry = OsString::from("XDG_RUNTIME_DIR=");
        entry.push(directory);
        all.push(entry);
    }
    all
}
