//! A guest in which packages are installed, and what the tests ask there.

use std::process::Command;

use super::{debs, done, fetched};
use crate::lab::{Guest, GuestOptions};
use crate::scratch::wait_until;

/// `systemctl --user status` of the helper's service.
pub const STATUS: [&str; 5] = [
    "systemctl",
    "--user",
    "status",
    "--no-pager",
    "cgleaf-helper.service",
];

/// Everything of cgleaf's that lies in a system's folders.
const TRACES: &str = "find /etc /usr /lib /var /run /root /home -xdev -name '*cgleaf*' \
     ! -path '/run/user/*/cgleaf*' ! -path '*/cgleaf-guest*' 2>/dev/null || true";

/// A guest that never saw cgleaf, with what shall be installed in its /packages.
pub struct Installed {
    guest: Guest,
}

impl Installed {
    /// Debian as it is fetched, of this name (bookworm has systemd 252, trixie 257), with [`debs`] in /packages and both users.
    /// None (and a word about it) where it cannot be had.
    ///
    /// # Panics
    /// Where it does not boot.
    pub fn debian(suite: &str) -> Option<Self> {
        let packages = debs()?;
        let root = fetched("fetch-root", &[suite])?;
        let options = GuestOptions::new()
            .root(root)
            .second_user()
            .bind(packages, "/packages");
        Some(Self::up(&options))
    }

    /// Any guest.
    ///
    /// # Panics
    /// Where it does not boot.
    pub fn up(options: &GuestOptions) -> Self {
        let guest = Guest::up(options).expect("boot a guest");
        Self { guest }
    }

    /// The guest itself.
    pub fn guest(&self) -> &Guest {
        &self.guest
    }

    /// A script of root's that must succeed; what it printed.
    #[track_caller]
    pub fn root(&self, script: &str) -> String {
        done(self.guest.root(["sh", "-c", script]))
    }

    /// A script of the first user's, beneath his manager, that must succeed; what it printed.
    #[track_caller]
    pub fn user(&self, script: &str) -> String {
        done(self.guest.user(["sh", "-c", script]))
    }

    /// `apt`, as somebody at a terminal would say it, but that nobody is there to be asked.
    #[track_caller]
    pub fn apt(&self, words: &str) -> String {
        let script = format!("cd /packages && DEBIAN_FRONTEND=noninteractive apt --yes {words}");
        self.root(&script)
    }

    /// What lies in the system's folders by the name of cgleaf.
    pub fn traces(&self) -> String {
        done(self.guest.enter(["sh", "-c", TRACES]))
    }

    /// A property of the user's service.
    pub fn unit(&self, property: &str) -> String {
        let script =
            format!("systemctl --user show --value --property {property} cgleaf-helper.service");
        self.user(&script).trim().to_owned()
    }

    /// The user's helper, once it serves.
    pub fn helpers_pid(&self) -> String {
        wait_until("the helper serves", || self.unit("SubState") == "running");
        self.unit("MainPID")
    }

    /// The sessions that `list` tells the user, as (id, state), in the order of their ids.
    ///
    /// # Panics
    /// Where it tells something else.
    pub fn sessions(&self) -> Vec<(String, String)> {
        let text = self.user("cgleaf list --json");
        let answer: serde_json::Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let sessions = answer["result"]["sessions"].as_array().expect("sessions");
        let text = |session: &serde_json::Value, name: &str| {
            session[name].as_str().unwrap_or_default().to_owned()
        };
        let mut sessions: Vec<_> = sessions
            .iter()
            .map(|session| (text(session, "session"), text(session, "state")))
            .collect();
        sessions.sort();
        sessions
    }

    /// How many processes have this command line.
    ///
    /// # Panics
    /// Where nobody can count them.
    pub fn running(&self, command: &str) -> usize {
        let pattern = format!("^{command}$");
        let mut count: Command = self.guest.enter(["pgrep", "-c", "-f", &pattern]);
        let output = count.output().expect("run pgrep");
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim()
            .parse()
            .unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}
