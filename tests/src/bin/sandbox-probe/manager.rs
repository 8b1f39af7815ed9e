//! A service manager's part towards a real helper, where there is no systemd: what the helper says once it is locked down.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command};

use anyhow::{Context, Result, ensure};
use cgleaf_tests::helper::{Client, session};
use cgleaf_tests::scratch::DEADLINE;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Where the helper is told to listen, and where it tells.
const SOCKET: &str = "/tmp/managed/helper.sock";
const NOTIFY: &str = "/tmp/managed/notify";

/// Starts the helper with `NOTIFY_SOCKET` and a watchdog, makes a session, stops it. Prints each thing that was told once.
pub(crate) fn serve(helper: &[String]) -> Result<()> {
    let (program, arguments) = helper.split_first().context("a helper is needed")?;
    fs::create_dir("/tmp/managed").context("make /tmp/managed")?;
    let told = UnixDatagram::bind(NOTIFY).context("bind the manager's socket")?;
    told.set_read_timeout(Some(DEADLINE))?;
    let helper = Command::new(program)
        .args(arguments)
        .args(["--socket", SOCKET])
        .env("NOTIFY_SOCKET", NOTIFY)
        .env("WATCHDOG_USEC", "400000")
        .spawn()
        .with_context(|| format!("start {program}"))?;
    let mut helper = Ended(helper);
    let ready = until(&told, "READY=1")?;
    require_filter(&helper.0)?;
    let fed = until(&told, "WATCHDOG=1")?;
    let client = Client::connect(Path::new(SOCKET)).context("connect to the helper")?;
    let _made = client.create(session("one"));
    let changed = until(&told, "STATUS=Serving 1")?;
    let pid = Pid::from_raw(i32::try_from(helper.0.id())?);
    kill(pid, Signal::SIGTERM).context("stop the helper")?;
    let stopping = until(&told, "STOPPING=1")?;
    let status = helper.0.wait().context("wait for the helper")?;
    println!("{ready}, {fed}, {changed}, {stopping}, {status}");
    Ok(())
}

/// What was told that begins so, in one line.
fn until(told: &UnixDatagram, beginning: &str) -> Result<String> {
    loop {
        let mut text = [0; 256];
        let length = told
            .recv(&mut text)
            .with_context(|| format!("wait for {beginning}"))?;
        let said = String::from_utf8_lossy(&text[..length]);
        if said.starts_with(beginning) {
            return Ok(said.replace('\n', " "));
        }
    }
}

/// It says so after the lock-down, not before.
fn require_filter(helper: &Child) -> Result<()> {
    let path = format!("/proc/{}/status", helper.id());
    let status = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    ensure!(
        status.contains("Seccomp:\t2"),
        "ready without a filter: {status}"
    );
    Ok(())
}

/// A helper that ends with this value.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
