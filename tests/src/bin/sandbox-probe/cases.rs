//! What a probe can try.

use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;

use anyhow::{Context, Result};
use cgleaf_helper::sandbox::Enforced;
use cgleaf_tests::sys;
use nix::dir::Dir;
use nix::fcntl::{AT_FDCWD, FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, getsockopt, setsockopt, socket,
    sockopt,
};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{Pid, UnlinkatFlags, unlinkat};

/// A case with what it needs from before the lock-down.
pub(crate) struct Prepared {
    case: String,
    arguments: Vec<String>,
    tcp: OwnedFd,
    listener: TcpListener,
    pair: (OwnedFd, OwnedFd),
    /// A service manager's socket, and the connection to it.
    manager: Option<(UnixDatagram, UnixDatagram)>,
}

pub(crate) fn prepare(case: &[String]) -> Result<Prepared> {
    let (case, arguments) = case.split_first().context("a case is needed")?;
    let unix = || {
        nix::sys::socket::socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )
        .context("socketpair")
    };
    Ok(Prepared {
        case: case.clone(),
        arguments: arguments.to_vec(),
        tcp: socket(
            AddressFamily::Inet,
            SockType::Stream,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .context("socket")?,
        listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("bind 127.0.0.1")?,
        pair: unix()?,
        manager: (case == "notify")
            .then(|| manager(&arguments[0]))
            .transpose()?,
    })
}

fn manager(path: &str) -> Result<(UnixDatagram, UnixDatagram)> {
    let listening = UnixDatagram::bind(path).with_context(|| format!("bind {path}"))?;
    let connected = UnixDatagram::unbound().context("socket")?;
    connected
        .connect(path)
        .with_context(|| format!("connect to {path}"))?;
    Ok((listening, connected))
}

/// Tries it. What is said is for the test to judge.
pub(crate) fn attempt(prepared: &Prepared, enforced: &Enforced) -> io::Result<String> {
    let arguments: Vec<&str> = prepared.arguments.iter().map(String::as_str).collect();
    match (prepared.case.as_str(), arguments.as_slice()) {
        ("enforced", []) => return Ok(enforced.to_string()),
        ("serve", []) => return serve(),
        ("open", [how, path]) => open(how, path)?,
        ("put", [path, text]) => put(path, text)?,
        ("mkdir", [path]) => mkdirat(AT_FDCWD, *path, Mode::from_bits_truncate(0o755))?,
        ("rmdir", [path]) => unlinkat(AT_FDCWD, *path, UnlinkatFlags::RemoveDir)?,
        ("unlink", [path]) => unlinkat(AT_FDCWD, *path, UnlinkatFlags::NoRemoveDir)?,
        ("list", [path]) => return list(path),
        ("notify", [_]) => return notify(prepared),
        ("leaf", [scope, pid]) => keep_a_leaf(scope, pid)?,
        (case, arguments) => match (forbidden(prepared, case, arguments), forced(case)) {
            (Some(result), _) | (None, Some(result)) => result?,
            (None, None) => panic!("no case {case} with {} arguments", arguments.len()),
        },
    }
    Ok("done".to_owned())
}

/// Waits as the helper would, for a word from the test: a line `open HOW PATH` is tried, an empty one is the end.
fn serve() -> io::Result<String> {
    println!("ready");
    let mut said = String::new();
    loop {
        // As long as nobody writes; a stop and a continue come in between.
        poll(
            &mut [PollFd::new(io::stdin().as_fd(), PollFlags::POLLIN)],
            PollTimeout::from(u16::MAX),
        )?;
        let mut byte = [0];
        if io::stdin().read(&mut byte)? == 0 || byte[0] == b'\n' {
            break;
        }
        said.push(char::from(byte[0]));
    }
    match said.split(' ').collect::<Vec<_>>().as_slice() {
        ["open", how, path] => open(how, path).map(|()| "opened".to_owned()),
        _ => Ok("served".to_owned()),
    }
}

/// Tells the service manager, as the helper does it, and reads as the manager what arrived.
fn notify(prepared: &Prepared) -> io::Result<String> {
    let (manager, connection) = prepared.manager.as_ref().expect("made for this case");
    nix::unistd::write(connection, b"WATCHDOG=1")?;
    let mut arrived = [0; 64];
    let length = nix::unistd::read(manager, &mut arrived)?;
    Ok(String::from_utf8_lossy(&arrived[..length]).into_owned())
}

fn open(how: &str, path: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    match how {
        "read" => options.read(true),
        "write" => options.write(true),
        "truncate" => options.write(true).truncate(true),
        "create" => options.write(true).create_new(true),
        "tmpfile" => options.write(true).custom_flags(libc::O_TMPFILE),
        _ => panic!("no way to open: {how}"),
    };
    options.open(path).map(|_| ())
}

fn put(path: &str, text: &str) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .open(path)?
        .write_all(text.as_bytes())
}

fn list(path: &str) -> io::Result<String> {
    let mut dir = Dir::open(path, OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let count = dir.iter().filter(Result::is_ok).count();
    Ok(count.to_string())
}

/// A session's whole life, by file writes alone: make the leaf, move, freeze, thaw, kill, remove.
fn keep_a_leaf(scope: &str, pid: &str) -> io::Result<()> {
    let leaf = format!("{scope}/cgleaf-probe.leaf");
    mkdirat(AT_FDCWD, leaf.as_str(), Mode::from_bits_truncate(0o755))?;
    let events = File::open(format!("{leaf}/cgroup.events"))?;
    put(&format!("{leaf}/cgroup.procs"), pid)?;
    await_event(&events, "populated 1")?;
    put(&format!("{leaf}/cgroup.freeze"), "1")?;
    await_event(&events, "frozen 1")?;
    put(&format!("{leaf}/cgroup.freeze"), "0")?;
    await_event(&events, "frozen 0")?;
    put(&format!("{leaf}/cgroup.kill"), "1")?;
    await_event(&events, "populated 0")?;
    Ok(unlinkat(AT_FDCWD, leaf.as_str(), UnlinkatFlags::RemoveDir)?)
}

fn await_event(events: &File, wanted: &str) -> io::Result<()> {
    // 600 looks of at most 100 ms: a deadline of a minute, which only a hung test meets.
    for _ in 0..600 {
        let mut text = [0; 256];
        let mut events = events;
        events.rewind()?;
        let count = events.read(&mut text)?;
        if String::from_utf8_lossy(&text[..count])
            .lines()
            .any(|line| line == wanted)
        {
            return Ok(());
        }
        poll(
            &mut [PollFd::new(events.as_fd(), PollFlags::POLLPRI)],
            PollTimeout::from(100_u8),
        )?;
    }
    Err(io::Error::new(
        io::ErrorKind::TimedOut,
        format!("no {wanted}"),
    ))
}

/// What the helper must never do.
fn forbidden(prepared: &Prepared, case: &str, arguments: &[&str]) -> Option<io::Result<()>> {
    let pid = || {
        arguments
            .first()
            .and_then(|text| text.parse().ok())
            .expect("a pid")
    };
    let result = match case {
        "execve" => sys::execve(c"/bin/true"),
        "fork" => sys::fork(),
        "clone3" => sys::clone3(),
        "thread" => std::thread::Builder::new().spawn(|| ()).map(drop),
        "ptrace" => sys::trace(pid()),
        "kill" => kill(Pid::from_raw(pid()), Signal::SIGCONT).map_err(Into::into),
        "tgkill" => sys::thread_kill(pid(), libc::SIGCONT),
        "socket-inet" => make_socket(AddressFamily::Inet),
        "socket-unix" => make_socket(AddressFamily::Unix),
        "connect" => connect_tcp(prepared),
        "bind" => {
            bind(prepared.tcp.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).map_err(Into::into)
        }
        "abstract" => connect_abstract(arguments[0]),
        "getsockopt" => getsockopt(&prepared.pair.0, sockopt::SocketError)
            .map(drop)
            .map_err(Into::into),
        "peer" => getsockopt(&prepared.pair.0, sockopt::PeerCredentials)
            .map(drop)
            .map_err(Into::into),
        "setsockopt" => setsockopt(&prepared.pair.0, sockopt::PassCred, &true).map_err(Into::into),
        "mmap-exec" => sys::map_page(libc::PROT_READ | libc::PROT_EXEC),
        "mmap-plain" => sys::map_page(libc::PROT_READ | libc::PROT_WRITE),
        "mmap-file" => sys::map_stdin(),
        "mprotect" => sys::make_executable(),
        "prctl" => nix::sys::prctl::set_dumpable(true).map_err(Into::into),
        "ioctl" => sys::device_ioctl(),
        "fcntl-owner" => sys::own_signals(),
        "fcntl-flags" => fcntl(prepared.pair.0.as_fd(), FcntlArg::F_GETFL)
            .map(drop)
            .map_err(Into::into),
        _ => return None,
    };
    Some(result)
}

fn make_socket(family: AddressFamily) -> io::Result<()> {
    Ok(socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).map(drop)?)
}

fn connect_tcp(prepared: &Prepared) -> io::Result<()> {
    let std::net::SocketAddr::V4(address) = prepared.listener.local_addr()? else {
        unreachable!("it was bound to v4")
    };
    let address: SocketAddrV4 = address;
    Ok(connect(
        prepared.tcp.as_raw_fd(),
        &SockaddrIn::from(address),
    )?)
}

fn connect_abstract(name: &str) -> io::Result<()> {
    let address = nix::sys::socket::UnixAddr::new_abstract(OsStr::new(name).as_bytes())?;
    let ours = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    Ok(connect(ours.as_raw_fd(), &address)?)
}

/// One case for each [`cgleaf_helper::sandbox::seccomp::Force`] but the stop, which `serve` is for.
fn forced(case: &str) -> Option<io::Result<()>> {
    match case {
        "Panic" => panic!("on purpose"),
        "HeapDamage" => sys::damage_heap(),
        "HeapGrowth" => grow_heap(),
        "BigAllocation" => allocate(),
        "Return" => {}
        "Segfault" => sys::segfault(),
        "StackOverflow" => drop(deeper(0)),
        "NoVdsoClock" => return Some(sys::slow_clock()),
        _ => return None,
    }
    Some(Ok(()))
}

/// Many blocks of many sizes, each far below the threshold for a mapping of its own.
fn grow_heap() {
    let blocks: Vec<Vec<u8>> = (0..20_000).map(|n| vec![1; 16 + n % 60 * 50]).collect();
    drop(std::hint::black_box(blocks));
}

/// Above the C library's threshold for a mapping of its own (128 KiB, up to 32 MiB as it adapts), grown, then freed.
fn allocate() {
    let mut block = vec![1_u8; 33 << 20];
    block.reserve_exact(64 << 20);
    drop(std::hint::black_box(block));
}

#[allow(unconditional_recursion)]
fn deeper(depth: u64) -> CString {
    let ballast = std::hint::black_box([depth; 512]);
    let mut below = deeper(ballast[0] + 1);
    std::hint::black_box(&mut below);
    below
}
