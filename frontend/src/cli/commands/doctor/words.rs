//! Words that a reader can put into a shell, or into a unit, as they stand.

use std::path::Path;

use nix::errno::Errno;
use nix::unistd::getppid;

/// As one word of sh(1).
pub(super) fn shell(word: impl AsRef<Path>) -> String {
    let word = word.as_ref().display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./_-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// As a value of a unit's `Environment=`, where a backslash begins an escape and a percent sign a specifier (systemd.exec(5)).
pub(super) fn unit_value(word: impl AsRef<Path>) -> String {
    let word = word.as_ref().display().to_string();
    word.replace('\\', "\\\\").replace('%', "%%")
}

/// An error as the standard library tells it.
pub(super) fn os_text(errno: Errno) -> String {
    std::io::Error::from(errno).to_string()
}

/// Who called this one, which is the shell that somebody types into; a placeholder where it is in another pid namespace.
pub(super) fn parent_pid() -> String {
    match getppid().as_raw() {
        0 => "PID".to_owned(),
        pid => pid.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escaped_units_name_stays_what_it_is() {
        assert_eq!(shell("ssh@1.service"), "ssh@1.service");
        assert_eq!(shell(r"a\x2db.service"), r"'a\x2db.service'");
        assert_eq!(shell("it's"), r"'it'\''s'");
        assert_eq!(unit_value(r"/a/b\x2dc%1.service"), r"/a/b\\x2dc%%1.service");
    }
}
