//! The content of a `cgroup.events` file.

/// What `cgroup.events` says of a cgroup and everything beneath it (cgroup-v2.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Events {
    /// Whether a live process is in it or in a descendant.
    pub populated: bool,
    /// Whether every task in it is frozen. It can be early where it has processes *and* children.
    pub frozen: bool,
}

impl Events {
    /// Reads the two values; keys that later kernels add are passed over. `None` if one is missing.
    pub fn parse(content: &[u8]) -> Option<Self> {
        let value = |key: &str| {
            String::from_utf8_lossy(content).lines().find_map(|line| {
                line.strip_prefix(key)?
                    .strip_prefix(' ')?
                    .trim()
                    .parse::<u8>()
                    .ok()
            })
        };
        // `frozen` is there since 5.2, the freezer's first kernel.
        Some(Self {
            populated: value("populated")? != 0,
            frozen: value("frozen")? != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_values_are_needed_in_any_order() {
        let parsed = Events::parse(b"frozen 1\nlater 9\npopulated 0\n").unwrap();
        assert_eq!(
            parsed,
            Events {
                populated: false,
                frozen: true
            }
        );
        for bad in [
            &b""[..],
            b"populated 1\n",
            b"populated x\nfrozen 0\n",
            b"populated1\nfrozen0\n",
        ] {
            assert_eq!(Events::parse(bad), None);
        }
    }
}
