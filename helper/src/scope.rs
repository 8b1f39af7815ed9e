//! The scope directory: found, made or taken over, and the helper's own place in it (DESIGN 3, steps 2 to 4).

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use cgleaf_shared::IoError;
use cgleaf_shared::cgroup::{
    CgroupDir, CgroupPath, CgroupRoot, ControlFile, HELPER_DIR, attributes, own_path,
};
use cgleaf_shared::id::{BootId, Nonce, Uid};
use cgleaf_shared::process::Pid;
use cgleaf_shared::wire::Mode;

use crate::args::{OldScope, Options};
use crate::cleaner::{self, Made};
use crate::context::Scope;
use crate::limits;
use crate::log;
use crate::write;

/// How often a directory that vanishes or appears meanwhile is looked for again: the helper before this one may be just being
/// cleaned up after, and another one may be starting.
const TRIES: usize = 20;

/// Finds or makes the scope directories, and moves this process to its place in the first.
pub(crate) fn settle(options: &Options, root: &CgroupRoot, boot: BootId) -> Result<Vec<Scope>> {
    let own = own_path().context("find the helper's own cgroup")?;
    for _ in 1..TRIES {
        match settle_once(options, root, boot, &own) {
            Err(error) if has_changed(&error) => {}
            other => return other,
        }
    }
    settle_once(options, root, boot, &own)
}

fn has_changed(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<IoError>())
        .any(|cause| cause.is_gone() || cause.errno() == Some(libc::EEXIST))
}

fn settle_once(
    options: &Options,
    root: &CgroupRoot,
    boot: BootId,
    own: &CgroupPath,
) -> Result<Vec<Scope>> {
    let mut scopes = taken_over(&options.take_over, root, boot);
    if scopes.is_empty() {
        scopes.push(first(options, root, own)?);
    }
    // Before the move: the cleaner stays outside.
    cleaner::start(&inherited(root, &scopes)?)?;
    move_into(options, root, &scopes[0].dir)?;
    Ok(scopes)
}

/// Those of the directories that a helper before this one made: its cleaner went with it, or left them to their sessions.
fn inherited(root: &CgroupRoot, scopes: &[Scope]) -> Result<Vec<Made>> {
    let mut made = Vec::new();
    for scope in scopes.iter().filter(|scope| !scope.is_new) {
        let path = scope.dir.path();
        if let (Some(parent), Some(name)) = (path.parent(), path.name())
            && scope.dir.attribute(attributes::MADE)?.is_some()
        {
            made.push(Made {
                parent: root.open_path(&parent)?,
                name: name.to_owned(),
            });
        }
    }
    Ok(made)
}

/// The one that the mode says.
fn first(options: &Options, root: &CgroupRoot, own: &CgroupPath) -> Result<Scope> {
    Ok(match (options.mode, &options.scope_dir) {
        // A private one serves one caller. The next caller of its sandbox has one too, and is given the same place.
        (Mode::Direct, Some(path)) if options.private => made_beneath(root, &place(root, path)?)?,
        (Mode::Direct, Some(path)) => given(root, &place(root, path)?)?,
        (Mode::Direct, None) => made_beneath(root, own)?,
        _ => Scope::new(delegated(root, own)?)?,
    })
}

/// The helper's own cgroup; or its parent, where systemd has put it into a cgroup of its own there
/// (`DelegateSubgroup=helper`), or where a helper before this one was started again in place.
fn delegated(root: &CgroupRoot, own: &CgroupPath) -> Result<CgroupDir> {
    let path = match own.parent() {
        Some(parent) if own.name() == Some(HELPER_DIR) => parent,
        _ => own.clone(),
    };
    if path.is_root() {
        bail!(
            "the helper is in the root of the cgroup hierarchy, which is nobody's to delegate: use --mode direct"
        );
    }
    Ok(root.open_path(&path)?)
}

/// Where in the hierarchy `--scope-dir` is.
fn place(root: &CgroupRoot, path: &Path) -> Result<CgroupPath> {
    let below = path
        .strip_prefix(&root.mount().point)
        .ok()
        .and_then(Path::to_str);
    let Some(below) = below else {
        bail!(
            "--scope-dir {} does not lie beneath the cgroup2 mount {}",
            path.display(),
            root.mount().point.display()
        );
    };
    CgroupPath::parse(&format!("/{}", below.trim_matches('/')))
        .with_context(|| format!("--scope-dir {}", path.display()))
}

/// The directory of `--scope-dir`, made if need be.
fn given(root: &CgroupRoot, path: &CgroupPath) -> Result<Scope> {
    let (Some(parent), Some(name)) = (path.parent(), path.name()) else {
        bail!(
            "--scope-dir must not be the root of the hierarchy: no leaf can be made there without capabilities"
        );
    };
    match root.open_path(path) {
        Err(error) if error.errno() == Some(libc::ENOENT) => {
            let parent = root.open_path(&parent)?;
            make(root, &parent, name)?;
            let scope = marked(&parent, name)?;
            // Not before it is made: if it is somebody else who makes it, it is not ours to remove.
            cleaner::start(&[Made {
                parent,
                name: name.to_owned(),
            }])?;
            Ok(scope)
        }
        other => {
            let dir = other?;
            nobody_in(&dir)?;
            Ok(Scope::new(dir)?)
        }
    }
}

/// What this user's directories are called that helpers make: this, something random, and the suffix.
fn scope_prefix() -> String {
    format!("cgleaf-{}-", Uid::effective())
}

const SCOPE_SUFFIX: &str = ".scope";

/// A new directory beneath a cgroup. Nobody else has its name, so that its cleaner can be there first: a helper that is killed
/// right after the making leaves nothing.
fn made_beneath(root: &CgroupRoot, above: &CgroupPath) -> Result<Scope> {
    let random = Nonce::generate()?.to_string();
    let prefix = scope_prefix();
    let made = Made {
        parent: root.open_path(above)?,
        name: format!("{prefix}{}{SCOPE_SUFFIX}", &random[..8]),
    };
    cleaner::sweep(&made.parent, |name| {
        name.starts_with(&prefix) && name.ends_with(SCOPE_SUFFIX)
    });
    cleaner::start(std::slice::from_ref(&made))?;
    make(root, &made.parent, &made.name)?;
    marked(&made.parent, &made.name)
}

/// Opens a directory that was just made, and writes on it that a helper did.
fn marked(parent: &CgroupDir, name: &str) -> Result<Scope> {
    let dir = parent.open_child(name)?;
    write::set_attribute(&dir, attributes::MADE, "1")?;
    Ok(Scope {
        is_new: true,
        ..Scope::new(dir)?
    })
}

/// Makes a cgroup; where a limit leaves no room for it, which.
fn make(root: &CgroupRoot, parent: &CgroupDir, name: &str) -> Result<()> {
    write::make_dir(parent, name).map_err(|error| match error.errno() {
        // mkdir(2) in a cgroup answers so at a limit, and only there.
        Some(libc::EAGAIN) => {
            let limit = limits::above(root, parent);
            anyhow::Error::from(error).context(format!("{limit} leaves no room"))
        }
        _ => error.into(),
    })
}

/// Moves this process into `helper/` beneath the scope directory.
fn move_into(options: &Options, root: &CgroupRoot, scope: &CgroupDir) -> Result<()> {
    let made = make(root, scope, HELPER_DIR);
    let errno = |error: &anyhow::Error| error.downcast_ref::<IoError>().and_then(IoError::errno);
    match made {
        Err(error) if errno(&error) == Some(libc::EAGAIN) => return Err(error),
        Err(error) if errno(&error) != Some(libc::EEXIST) => {
            return Err(error).context("is the cgroup delegated to this user?");
        }
        _ => {}
    }
    let own = scope.open_child(HELPER_DIR)?;
    if made.is_ok() && options.mode == Mode::Direct {
        write::set_attribute(&own, attributes::MADE, "1")?;
    }
    let pid = Pid::own();
    if let Err(error) = write::control(&own, ControlFile::Procs, &pid.to_string()) {
        // Only an empty one goes.
        if made.is_ok() {
            let _ = write::remove_dir(scope, HELPER_DIR);
        }
        return Err(error.into());
    }
    // A bind mount of a subtree shows other paths than /proc does: then nothing here would be where it seems.
    let now = own_path()?;
    if now != *own.path() {
        bail!(
            "the helper moved itself to {} and /proc/self/cgroup says {now}: the cgroup2 mount at {} does not show the \
             hierarchy that /proc speaks of",
            own.path(),
            own.shown().display()
        );
    }
    Ok(())
}

/// Takes `helper/` away from a scope directory that was given, where a helper made it: its giver finds the directory as it was. One
/// that a helper made itself has a cleaner, which sees to a helper's violent end too; here the next helper does. It stays where
/// controllers are handed on beneath the directory: no process may go back into that then (EBUSY, cgroup-v2.rst).
pub(crate) fn leave(scope: &CgroupDir) {
    let is_made = |dir: &CgroupDir| matches!(dir.attribute(attributes::MADE), Ok(Some(_)));
    let ours = scope.open_child(HELPER_DIR).is_ok_and(|own| is_made(&own));
    if !ours || is_made(scope) {
        return;
    }
    let own = Pid::own().to_string();
    let left = write::control(scope, ControlFile::Procs, &own)
        .and_then(|()| write::remove_dir(scope, HELPER_DIR));
    if let Err(error) = left {
        log::line(format_args!("{HELPER_DIR}/ stays: {error}"));
    }
}

/// [`leave`]s at a start that fails further on.
#[derive(Debug)]
pub(crate) struct Leaving(CgroupDir);

impl Leaving {
    /// From the first of the scope directories, if there is any.
    pub(crate) fn from(scopes: &[Scope], root: &CgroupRoot) -> Result<Option<Self>> {
        let first = scopes.first();
        let opened = first.map(|scope| root.open_path(scope.dir.path()));
        Ok(opened.transpose()?.map(Self))
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        leave(&self.0);
    }
}

/// The old scope directories that still are what a record says, and that no helper lives in.
fn taken_over(old: &[OldScope], root: &CgroupRoot, boot: BootId) -> Vec<Scope> {
    let mut scopes: Vec<Scope> = Vec::new();
    for scope in old {
        match take(scope, root, boot) {
            Ok(taken) if scopes.iter().all(|have| have.domain.id != taken.domain.id) => {
                scopes.push(taken);
            }
            Ok(_) => {}
            // Nothing is left of it to be taken over.
            Err(why) if is_gone(&why) => {}
            Err(why) => log::line(format_args!(
                "{} is not taken over: {}",
                scope.path,
                log::chain(&why)
            )),
        }
    }
    scopes
}

fn is_gone(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<IoError>();
    cause.is_some_and(IoError::is_gone)
}

fn take(old: &OldScope, root: &CgroupRoot, boot: BootId) -> Result<Scope> {
    if old.boot != boot {
        bail!("it is of another boot");
    }
    if old.root != root.id() {
        bail!(
            "its path is relative to cgroup {}, the root here is cgroup {}",
            old.root,
            root.id()
        );
    }
    if old.path.is_root() {
        bail!("it is the root of the hierarchy");
    }
    let dir = root.open_path(&old.path)?;
    let id = dir.id()?;
    if id != old.id {
        bail!(
            "it is cgroup {id}, not cgroup {}: it was removed and made again",
            old.id
        );
    }
    nobody_in(&dir)?;
    Ok(Scope::new(dir)?)
}

/// Two helpers of one directory would each do what the other knows nothing of. Whether there is one is what the kernel says:
/// one that is a zombie is in no cgroup.
fn nobody_in(scope: &CgroupDir) -> Result<()> {
    match scope.open_child(HELPER_DIR) {
        Ok(own) if own.events()?.populated => bail!("another helper lives in {}", scope.path()),
        _ => Ok(()),
    }
}
