//! What is enforced, item by item, in a form for Welcome, `doctor` and the log.

use std::fmt;

use super::error::SandboxError;
use super::status::Status;

/// Whether one restriction holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// The kernel holds this process to it.
    Enforced,
    /// It does not, and this is why: what was tried and what the kernel answered.
    Missing(String),
}

impl Item {
    pub(super) fn missing(tried: &str, answer: impl fmt::Display) -> Self {
        Self::Missing(format!("{tried}: {answer}"))
    }

    /// Whether the restriction holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        matches!(self, Self::Enforced)
    }

    /// Turns an item that was attempted with success into a missing one if the kernel does not confirm it.
    fn confirm(&mut self, confirmed: bool, doubt: impl FnOnce() -> String) {
        if self.holds() && !confirmed {
            *self = Self::Missing(doubt());
        }
    }
}

/// What [`super::lock_down`] achieved, as the kernel tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enforced {
    /// The inheritable, permitted, effective and ambient capability sets are empty (capabilities(7)).
    pub capabilities: Item,
    /// The bounding set is empty too. Only root can see to that; without it nothing is gained, since no program is
    /// executed any more and `no_new_privs` holds.
    pub bounding_set: Item,
    /// `no_new_privs` (prctl(2)).
    pub no_new_privs: Item,
    /// Not dumpable: no one of the same uid can trace it or look at its memory (PR_SET_DUMPABLE in prctl(2)).
    pub not_dumpable: Item,
    /// `RLIMIT_CORE` is 0.
    pub no_core: Item,
    /// The soft limit of descriptors was raised to the hard one (`RLIMIT_NOFILE`).
    pub descriptors: Item,
    /// That limit, a count of descriptors.
    pub descriptor_limit: u64,
    /// The ABI that landlock's rules are effective at: the kernel's, at most [`super::landlock::HANDLED_ABI`]; 0 without landlock.
    pub landlock_abi: u32,
    /// Landlock's file rules, truncation with them (ABI 3).
    pub landlock_files: Item,
    /// No ioctl on devices opened later (ABI 5).
    pub landlock_ioctl: Item,
    /// No TCP socket is bound or connected (ABI 4).
    pub landlock_tcp: Item,
    /// No signal and no abstract unix socket reaches out of the sandbox (ABI 6).
    pub landlock_scopes: Item,
    /// The system call filter (seccomp(2)).
    pub seccomp: Item,
}

impl Enforced {
    /// Nothing holds yet.
    #[must_use]
    pub fn nothing() -> Self {
        let not_yet = || Item::Missing("not attempted".to_owned());
        Self {
            capabilities: not_yet(),
            bounding_set: not_yet(),
            no_new_privs: not_yet(),
            not_dumpable: not_yet(),
            no_core: not_yet(),
            descriptors: not_yet(),
            descriptor_limit: 0,
            landlock_abi: 0,
            landlock_files: not_yet(),
            landlock_ioctl: not_yet(),
            landlock_tcp: not_yet(),
            landlock_scopes: not_yet(),
            seccomp: not_yet(),
        }
    }

    /// Every item with its name, in the order in which they are applied.
    #[must_use]
    pub fn items(&self) -> [(&'static str, &Item); 11] {
        [
            ("capabilities", &self.capabilities),
            ("bounding_set", &self.bounding_set),
            ("no_new_privs", &self.no_new_privs),
            ("not_dumpable", &self.not_dumpable),
            ("no_core", &self.no_core),
            ("descriptors", &self.descriptors),
            ("landlock_files", &self.landlock_files),
            ("landlock_ioctl", &self.landlock_ioctl),
            ("landlock_tcp", &self.landlock_tcp),
            ("landlock_scopes", &self.landlock_scopes),
            ("seccomp", &self.seccomp),
        ]
    }

    /// The items without which a root mode does not start.
    fn required(&self) -> [(&'static str, &Item); 4] {
        [
            ("capabilities", &self.capabilities),
            ("no_new_privs", &self.no_new_privs),
            ("landlock_files", &self.landlock_files),
            ("seccomp", &self.seccomp),
        ]
    }

    /// Takes back whatever the kernel does not confirm.
    pub(super) fn confirm(&mut self, status: &Status) {
        self.capabilities.confirm(status.capabilities == 0, || {
            format!(
                "CapInh|CapPrm|CapEff|CapAmb is {:#x} after the drop",
                status.capabilities
            )
        });
        self.bounding_set.confirm(status.bounding_set == 0, || {
            format!("CapBnd is {:#x} after the drop", status.bounding_set)
        });
        self.no_new_privs.confirm(status.no_new_privs, || {
            "NoNewPrivs is 0 after prctl(2)".to_owned()
        });
        self.seccomp.confirm(status.seccomp == 2, || {
            format!(
                "Seccomp is {} after seccomp(2), not 2 (filter)",
                status.seccomp
            )
        });
    }

    pub(super) fn require(&self) -> Result<(), SandboxError> {
        let missing: Vec<_> = self
            .required()
            .into_iter()
            .filter_map(|(name, item)| match item {
                Item::Enforced => None,
                Item::Missing(reason) => Some((name, reason.clone())),
            })
            .collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(SandboxError::Required(missing))
        }
    }
}

/// One line for the log: what holds, then what does not and why.
impl fmt::Display for Enforced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "enforced:")?;
        for (name, _) in self.items().into_iter().filter(|(_, item)| item.holds()) {
            write!(f, " {name}")?;
        }
        write!(
            f,
            " (landlock ABI {}, {} descriptors)",
            self.landlock_abi, self.descriptor_limit
        )?;
        let mut told = "";
        for (name, item) in self.items() {
            match item {
                Item::Enforced => {}
                // One cause often takes several items with it.
                Item::Missing(reason) if reason == told => write!(f, "; not {name} either")?,
                Item::Missing(reason) => {
                    write!(f, "; not {name}: {reason}")?;
                    told = reason;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Enforced {
        Enforced {
            capabilities: Item::Enforced,
            bounding_set: Item::Enforced,
            no_new_privs: Item::Enforced,
            not_dumpable: Item::Enforced,
            no_core: Item::Enforced,
            descriptors: Item::Enforced,
            descriptor_limit: 1024,
            landlock_abi: 6,
            landlock_files: Item::Enforced,
            landlock_ioctl: Item::Enforced,
            landlock_tcp: Item::Enforced,
            landlock_scopes: Item::Enforced,
            seccomp: Item::Enforced,
        }
    }

    fn locked() -> Status {
        Status {
            threads: 1,
            capabilities: 0,
            bounding_set: 0,
            no_new_privs: true,
            seccomp: 2,
        }
    }

    #[test]
    fn what_the_kernel_denies_is_taken_back() {
        type Break = fn(&mut Status);
        let cases: [(Break, &str); 4] = [
            (|s| s.capabilities = 1, "capabilities"),
            (|s| s.bounding_set = 0x200, "bounding_set"),
            (|s| s.no_new_privs = false, "no_new_privs"),
            (|s| s.seccomp = 0, "seccomp"),
        ];
        for (spoil, name) in cases {
            let (mut enforced, mut status) = (all(), locked());
            spoil(&mut status);
            enforced.confirm(&status);
            let missing: Vec<_> = enforced
                .items()
                .into_iter()
                .filter(|(_, i)| !i.holds())
                .map(|(n, _)| n)
                .collect();
            assert_eq!(missing, [name]);
        }
    }

    #[test]
    fn a_confirmation_never_hides_a_reason() {
        let mut enforced = all();
        enforced.seccomp = Item::missing("seccomp(2)", "EINVAL");
        enforced.confirm(&locked());
        assert_eq!(
            enforced.seccomp,
            Item::Missing("seccomp(2): EINVAL".to_owned())
        );
    }

    #[test]
    fn only_the_four_weighty_items_are_required() {
        for (name, _) in all().items() {
            let mut enforced = all();
            let gone = || Item::Missing("gone".to_owned());
            match name {
                "capabilities" => enforced.capabilities = gone(),
                "bounding_set" => enforced.bounding_set = gone(),
                "no_new_privs" => enforced.no_new_privs = gone(),
                "not_dumpable" => enforced.not_dumpable = gone(),
                "no_core" => enforced.no_core = gone(),
                "descriptors" => enforced.descriptors = gone(),
                "landlock_files" => enforced.landlock_files = gone(),
                "landlock_ioctl" => enforced.landlock_ioctl = gone(),
                "landlock_tcp" => enforced.landlock_tcp = gone(),
                "landlock_scopes" => enforced.landlock_scopes = gone(),
                "seccomp" => enforced.seccomp = gone(),
                other => panic!("an item without a case: {other}"),
            }
            let fatal =
                ["capabilities", "no_new_privs", "landlock_files", "seccomp"].contains(&name);
            assert_eq!(enforced.require().is_err(), fatal, "{name}");
        }
    }

    #[test]
    fn the_log_line_names_what_is_missing_and_why() {
        let mut enforced = all();
        enforced.landlock_scopes = Item::Missing("landlock ABI 3, 6 needed".to_owned());
        enforced.landlock_abi = 3;
        let line = enforced.to_string();
        assert!(line.starts_with("enforced: capabilities "), "{line}");
        assert!(
            line.contains("(landlock ABI 3, 1024 descriptors)"),
            "{line}"
        );
        assert!(
            line.ends_with("; not landlock_scopes: landlock ABI 3, 6 needed"),
            "{line}"
        );
        enforced.seccomp = enforced.landlock_scopes.clone();
        let line = enforced.to_string();
        assert!(line.ends_with("needed; not seccomp either"), "{line}");
    }
}
