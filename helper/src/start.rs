//! The start, in the order of DESIGN 3. All that needs rights comes before the lock-down, and no byte of a client is read
//! before it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use cgleaf_shared::cgroup::{CgroupRoot, own_path};
use cgleaf_shared::id::{BootId, Uid};
use cgleaf_shared::process::{Pid, Proc, ProcView, set_umask};
use cgleaf_shared::socket;
use cgleaf_shared::wire::{BUILD, Enforcement, MAGIC, Mode, PROTOCOL, Welcome};
use nix::sys::resource::{Resource, getrlimit};

use crate::args::Options;
use crate::context::{Context, Scope, State};
use crate::endpoints::Endpoints;
use crate::listen::{self, Claim, Listener};
use crate::log;
use crate::notify::Notify;
use crate::place::{Pattern, Rules, user_slice};
use crate::quota::{self, Quota};
use crate::rebuild;
use crate::rehearse;
use crate::sandbox::{self, Enforced, Item, LockDown, Reach};
use crate::scope::{self, Leaving};
use crate::server::{Ends, Server};

/// How long a shared helper stays without a session and a client.
const IDLE: Duration = Duration::from_secs(30);
/// How often a private one looks whether it is over.
const PRIVATE_IDLE: Duration = Duration::from_secs(1);
/// Descriptors that the helper has open by itself, generously counted: stdio, listener, lock, directories, /proc,
/// epoll, signals, the notify socket, and what one request opens.
const OWN_DESCRIPTORS: u64 = 32;

/// What is read before the lock-down, and needed after it.
struct Ground {
    root: CgroupRoot,
    proc: Proc,
    boot_id: BootId,
    uid: Uid,
}

impl Ground {
    fn read() -> Result<Self> {
        Ok(Self {
            root: own_root()?,
            proc: own_proc()?,
            boot_id: BootId::current()?,
            uid: Uid::effective(),
        })
    }
}

/// Starts, serves, and comes back at the helper's end.
pub(crate) fn serve(options: &Options) -> Result<()> {
    sandbox::install_panic_hook();
    require_descriptors()?;
    // What was inherited is taken before anything else is opened: a number that is not open could be given anew.
    let client = options
        .client_fd
        .map(listen::inherited_client)
        .transpose()?;
    let mut listeners = Listener::from_manager()?;
    if listeners.is_empty() && client.is_none() && options.socket.is_none() {
        bail!(
            "there is nothing to serve: give --socket or --client-fd, or start it by its socket unit"
        );
    }
    #[cfg(feature = "trace")]
    crate::trace::open(options.trace.as_deref())?;
    let ground = Ground::read()?;

    umask(0o077)?;
    // The lock first: who loses the race for the socket leaves nothing behind.
    let claim = match &options.socket {
        Some(path) => Some(Claim::take(
            path,
            options.private || is_of_a_directory(path),
        )?),
        None => None,
    };
    umask(0o022)?;
    let scopes = scopes(options, &ground)?;
    let leaving = Leaving::from(&scopes, &ground.root)?;
    umask(socket_umask(options.mode))?;
    if let Some(claim) = claim {
        listeners.push(claim.bind()?);
    }
    umask(0o022)?;
    if options.mode.is_root_mode() {
        listeners
            .iter()
            .try_for_each(Listener::refuse_descriptors)?;
    }
    let notify = Notify::connect()?;
    let endpoints = Endpoints::new(listeners, notify)?;

    let enforced = lock_down(options, &ground, &scopes, &endpoints)?;
    log::line(format_args!("{enforced}"));
    let context = context(options, ground, scopes, &endpoints, &enforced)?;
    run(options, context, endpoints, client)?;
    // It has left while it had the lock; now the directory may be another helper's.
    std::mem::forget(leaving);
    Ok(())
}

fn umask(mask: u32) -> Result<()> {
    set_umask(mask)
        .context("set the umask: does a system call filter around the helper refuse umask(2)?")
}

/// Whether a socket is that of a directory which was given while another helper had the usual place.
fn is_of_a_directory(path: &Path) -> bool {
    let name = path.file_name().and_then(std::ffi::OsStr::to_str);
    name.is_some_and(socket::is_of_a_directory)
}

/// The soft limit is raised to the hard one later. A helper that could take in nobody would only keep another from its place.
fn require_descriptors() -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("getrlimit(RLIMIT_NOFILE)")?;
    if quota::clients_within(hard, OWN_DESCRIPTORS) == 0 {
        bail!(
            "RLIMIT_NOFILE is {hard}, which leaves no descriptor for a client: raise it (ulimit -Hn, LimitNOFILE= of a unit)"
        );
    }
    Ok(())
}

/// Everyone may connect to the node service, whom it serves is decided by their place; the others have one user.
fn socket_umask(mode: Mode) -> u32 {
    if mode == Mode::NodeService {
        0o111
    } else {
        0o077
    }
}

/// The node service has no scope directory: its leaves lie in containers.
fn scopes(options: &Options, ground: &Ground) -> Result<Vec<Scope>> {
    if options.mode == Mode::NodeService {
        return Ok(Vec::new());
    }
    scope::settle(options, &ground.root, ground.boot_id)
}

/// The paths that /proc has must be those of the mount. Where they are not, `/` there is somebody else's cgroup, as the machine's
/// own root in a container that was given it: nothing is made there, and nobody moved.
fn own_root() -> Result<CgroupRoot> {
    let root = CgroupRoot::open()?;
    let mount = root.mount();
    if !mount.shows_the_namespace() {
        bail!(
            "the cgroup2 mount at {} has the root {} (/proc/self/mountinfo): it does not show the hierarchy that /proc speaks \
             of; mount cgroup2 anew in this cgroup namespace, or run this container with the machine's (docker: --cgroupns=host)",
            mount.point.display(),
            mount.root.display()
        );
    }
    Ok(root)
}

/// The numbers that the kernel gives for peers must be those that /proc has.
fn own_proc() -> Result<Proc> {
    let proc = Proc::system()?;
    match proc.view()? {
        ProcView::Own => Ok(proc),
        ProcView::Foreign => {
            bail!("/proc belongs to another pid namespace: mount the helper's own one (proc(5))")
        }
    }
}

fn lock_down(
    options: &Options,
    ground: &Ground,
    scopes: &[Scope],
    endpoints: &Endpoints,
) -> Result<Enforced> {
    let dirs: Vec<_> = scopes.iter().map(|scope| scope.dir.as_fd()).collect();
    let in_place = options.mode == Mode::NodeService || !options.container_roots.is_empty();
    let plan = LockDown {
        scope_dirs: &dirs,
        cgroup_mount: ground.root.dir().as_fd(),
        socket_dir: endpoints.socket_dir(),
        reach: if in_place {
            Reach::CgroupMount
        } else {
            Reach::ScopeDirectories
        },
        require: options.require_sandbox || options.mode.is_root_mode(),
    };
    rehearse::lock_down(&plan, &ground.proc)?;
    Ok(sandbox::lock_down(&plan)?)
}

fn context(
    options: &Options,
    ground: Ground,
    scopes: Vec<Scope>,
    endpoints: &Endpoints,
    enforced: &Enforced,
) -> Result<Context> {
    let mode = options.mode;
    let uid = options.uid.unwrap_or(ground.uid);
    let own_cgroup = own_path()?;
    let mut container_roots = options.container_roots.clone();
    if mode == Mode::NodeService {
        container_roots.extend(Pattern::known());
    }
    let depth = ground
        .proc
        .process(Pid::own())?
        .status()?
        .ns_pids
        .len()
        .max(1);
    Ok(Context {
        mode,
        rules: Rules {
            mode,
            uid,
            slice: user_slice(&own_cgroup, uid),
            container_roots,
            known_roots: Pattern::known(),
            own_cgroup,
        },
        quota: Quota::new(
            mode,
            options.max_sessions,
            options.max_clients,
            enforced.descriptor_limit,
            OWN_DESCRIPTORS,
        ),
        root: ground.root,
        proc: ground.proc,
        boot_id: ground.boot_id,
        scopes,
        socket: endpoints.socket(),
        depth,
        welcome: Welcome {
            magic: MAGIC,
            protocol: PROTOCOL,
            build: BUILD.to_owned(),
            mode: mode.name().to_owned(),
            enforced: enforcement(enforced),
        },
    })
}

/// The lock-down's report as Welcome carries it.
fn enforcement(enforced: &Enforced) -> Vec<Enforcement> {
    enforced
        .items()
        .into_iter()
        .map(|(part, item)| Enforcement {
            part: part.to_owned(),
            enforced: item.holds(),
            detail: match item {
                Item::Missing(why) => why.clone(),
                Item::Enforced if part.starts_with("landlock") => {
                    format!("landlock ABI {}", enforced.landlock_abi)
                }
                Item::Enforced => String::new(),
            },
        })
        .collect()
}

fn run(
    options: &Options,
    context: Context,
    endpoints: Endpoints,
    client: Option<OwnedFd>,
) -> Result<()> {
    let found = rebuild::rebuild(&context);
    let mut state = State::new(context, found.table);
    let until = Instant::now() + crate::requests::RETURN_TIME;
    state.leases.waiting = found.leased.into_iter().map(|key| (until, key)).collect();
    let ends = match options.mode {
        _ if options.private => Ends::WhenIdle(PRIVATE_IDLE),
        Mode::Scope | Mode::Direct => Ends::WhenIdle(options.idle_exit.unwrap_or(IDLE)),
        _ => Ends::Never,
    };
    for key in found.leaderless {
        crate::requests::remove_once_empty(&mut state, key);
    }
    let mut server = Server::new(state, endpoints, ends)?;
    if let Some(client) = client {
        server.welcome_inherited(client);
    }
    server.run()
}
