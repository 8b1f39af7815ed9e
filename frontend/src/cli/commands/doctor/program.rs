//! A helper's program that does not start.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::settings::Settings;
use super::words::{os_text, shell, unit_value};

/// The program, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program {
    path: PathBuf,
    trouble: Trouble,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// The kernel executes no such file (ENOEXEC).
    NoProgram,
    /// It may not be executed (EACCES).
    NotAllowed,
    /// It ends without a word.
    Wordless,
    /// It neither answers nor ends.
    Silent,
    /// Another answer.
    Other,
}

impl Program {
    /// The one that is named there: `execute PATH: why`, or `PATH ended without a word`.
    pub(super) fn that_does_not_start(reason: &str) -> Option<Self> {
        for (words, trouble) in [
            (crate::launch::ENDED_WITHOUT_A_WORD, Trouble::Wordless),
            (crate::launch::NEITHER_ANSWERS_NOR_ENDS, Trouble::Silent),
        ] {
            if let Some((before, _)) = reason.split_once(words) {
                let path = before.trim_end().rsplit(": ").next()?;
                return Path::new(path).is_absolute().then(|| Self {
                    path: path.into(),
                    trouble,
                });
            }
        }
        let (_, after) = reason.split_once("execute /")?;
        let (path, why) = after.split_once(": ")?;
        let trouble = if why.starts_with(&os_text(Errno::ENOEXEC)) {
            Trouble::NoProgram
        } else if why.starts_with(&os_text(Errno::EACCES)) {
            Trouble::NotAllowed
        } else {
            Trouble::Other
        };
        Some(Self {
            path: Path::new("/").join(path),
            trouble,
        })
    }

    /// The settings of a unit that let it be executed; none where it is not for them that it is not.
    pub(super) fn settings(&self, told: &Settings) -> Vec<String> {
        if self.trouble != Trouble::NotAllowed {
            return Vec::new();
        }
        let path = self.path.as_path();
        match (
            told.entry_around("InaccessiblePaths", path),
            told.entry_around("NoExecPaths", path),
        ) {
            (Some(entry), _) => told.without("InaccessiblePaths", &entry),
            (None, Some(entry)) if entry != path => vec![format!("ExecPaths={}", unit_value(path))],
            (None, Some(entry)) => told.without("NoExecPaths", &entry),
            (None, None) => Vec::new(),
        }
    }

    /// What helps.
    pub(super) fn advice(&self) -> String {
        let path = shell(&self.path);
        match self.trouble {
            Trouble::NoProgram => {
                format!("install {path} anew: it is damaged, or another machine's (`file {path}`)")
            }
            Trouble::NotAllowed if is_executable(&self.path) => format!(
                "let {path} be executed: it may be so by its mode, and not by its mount (noexec), by a directory above it, or by what a \
                 unit has set (`NoExecPaths=`, `InaccessiblePaths=`)"
            ),
            Trouble::NotAllowed => format!("`chmod 755 {path}`: it may not be executed"),
            Trouble::Wordless => format!(
                "see whether `{path} --version` runs here; if it does not it is damaged, or something kills it: install it anew"
            ),
            Trouble::Silent => format!(
                "see whether `{path} --version` answers here: what was started of it goes on without a word, and `pgrep -f {path}` names it"
            ),
            Trouble::Other => {
                format!("put right why {path} cannot be executed: the kernel's answer stands above")
            }
        }
    }
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|stat| stat.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::super::settings::tests::settings;
    use super::*;

    #[test]
    fn a_program_is_named_by_its_path_and_its_trouble() {
        let advice = |reason: &str| Program::that_does_not_start(reason).map(|one| one.advice());
        let denied =
            "start a helper in /x: execute /opt/a b/cgleaf-helper: Permission denied (os error 13)";
        assert!(
            advice(denied)
                .unwrap()
                .contains("`chmod 755 '/opt/a b/cgleaf-helper'`")
        );
        let other = "execute /h: Exec format error (os error 8)";
        assert!(advice(other).unwrap().contains("install /h anew"));
        let wordless = "start a helper in a cgroup beneath this one: /h ended without a word";
        assert!(advice(wordless).unwrap().contains("`/h --version`"));
        assert_eq!(advice("start a helper in /x: RLIMIT_NOFILE is 16"), None);
        let program =
            Program::that_does_not_start("execute /o/h: Permission denied (os error 13)").unwrap();
        for (told, given) in [
            ("NoExecPaths=/o\n", &["ExecPaths=/o/h"][..]),
            ("NoExecPaths=/o/h /x\n", &["NoExecPaths=", "NoExecPaths=/x"]),
            ("InaccessiblePaths=/o/h\n", &["InaccessiblePaths="]),
            ("NoExecPaths=/x\n", &[]),
        ] {
            assert_eq!(program.settings(&settings(told)), given, "{told}");
        }
    }
}
