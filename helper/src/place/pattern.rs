//! Which cgroups are containers' own.

use cgleaf_shared::cgroup::CgroupPath;

/// A pattern for container roots: components with `*` in them, such as `docker-*.scope` or `docker/*`. It matches
/// consecutive components of a path, wherever they stand in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<String>);

/// What container managers call a container's own cgroup, with systemd and without. The pod's and the kubelet's own levels
/// are above it.
const KNOWN_CONTAINER_ROOTS: [&str; 8] = [
    "docker-*.scope",
    "docker/*",
    "cri-containerd-*.scope",
    "crio-*.scope",
    "libpod-*.scope",
    "libpod_parent/libpod-*",
    "kubepods/pod*/*",
    "kubepods/*/pod*/*",
];

impl Pattern {
    /// Reads a pattern; `None` for an empty one or one with an empty component.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let components: Vec<String> = text.split('/').map(str::to_owned).collect();
        let sound = components
            .iter()
            .all(|part| !part.is_empty() && part != "..");
        sound.then_some(Self(components))
    }

    /// Those that are known.
    pub(crate) fn known() -> Vec<Self> {
        KNOWN_CONTAINER_ROOTS
            .iter()
            .filter_map(|text| Self::parse(text))
            .collect()
    }

    fn matches_end_of(&self, components: &[&str]) -> bool {
        components.len() >= self.0.len()
            && components[components.len() - self.0.len()..]
                .iter()
                .zip(&self.0)
                .all(|(component, glob)| matches(glob, component))
    }
}

/// `*` stands for any characters of one component.
fn matches(glob: &str, text: &str) -> bool {
    let mut pieces = glob.split('*');
    let Some(mut rest) = pieces.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else {
        return rest.is_empty();
    };
    for piece in pieces {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The innermost container root around a path, that path itself included.
pub(crate) fn container_root(patterns: &[Pattern], path: &CgroupPath) -> Option<CgroupPath> {
    path.ancestors().find(|candidate| {
        let components: Vec<&str> = candidate.as_str()[1..].split('/').collect();
        patterns
            .iter()
            .any(|pattern| pattern.matches_end_of(&components))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> CgroupPath {
        CgroupPath::parse(text).unwrap()
    }

    #[test]
    fn the_innermost_container_counts() {
        let known = Pattern::known();
        let root = |text| container_root(&known, &path(text)).map(|root| root.to_string());
        assert_eq!(
            root("/docker/a/docker/b/x").as_deref(),
            Some("/docker/a/docker/b")
        );
        assert_eq!(root("/docker"), None);
        assert_eq!(
            root("/kubepods/burstable/pod1/c/x").as_deref(),
            Some("/kubepods/burstable/pod1/c")
        );
        assert_eq!(
            root("/kubepods/pod1/c").as_deref(),
            Some("/kubepods/pod1/c")
        );
        assert_eq!(root("/kubepods/burstable/pod1"), None);
        assert_eq!(
            root("/kubepods.slice/kubepods-podx.slice/cri-containerd-c.scope/init").as_deref(),
            Some("/kubepods.slice/kubepods-podx.slice/cri-containerd-c.scope")
        );
        assert_eq!(root("/system.slice/docker.service"), None);
        assert_eq!(root("/a/docker-x.scope.d"), None);
    }

    #[test]
    fn a_star_stays_within_its_component() {
        assert!(matches("a*c", "abc") && matches("*", "x") && matches("a*b*c", "a1b2bc"));
        assert!(!matches("a*c", "ab") && !matches("ab", "abc") && !matches("aa*aa", "aaa"));
        assert_eq!(Pattern::parse("a//b"), None);
        assert_eq!(Pattern::parse(""), None);
    }
}
