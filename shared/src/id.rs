//! The ids that cross a boundary, each a type of its own and each checked where it comes in.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{IoContext, IoError};
use crate::sys;

/// The longest session id or name, in bytes.
pub const MAX_ID_LEN: usize = 64;

/// Why a text is no session id or name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    /// Nothing at all.
    #[error("it is empty")]
    Empty,
    /// More than [`MAX_ID_LEN`] bytes.
    #[error("it has {0} bytes, {MAX_ID_LEN} are allowed")]
    TooLong(usize),
    /// A leading dot or dash: `.` and `..` are directories, `-x` is an option.
    #[error("it begins with {0:?}")]
    LeadingDotOrDash(char),
    /// A character outside `[A-Za-z0-9._-]`.
    #[error("it has the character {0:?}; letters, digits, dot, underscore and dash are allowed")]
    BadCharacter(char),
}

/// The one rule for ids and names: 1 to 64 of `[A-Za-z0-9._-]`, no leading dot or dash.
fn check(text: &str) -> Result<(), IdError> {
    if let Some(bad) = text
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || "._-".contains(*c)))
    {
        return Err(IdError::BadCharacter(bad));
    }
    match text.chars().next() {
        None => Err(IdError::Empty),
        Some(first @ ('.' | '-')) => Err(IdError::LeadingDotOrDash(first)),
        Some(_) if text.len() > MAX_ID_LEN => Err(IdError::TooLong(text.len())),
        Some(_) => Ok(()),
    }
}

macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                check(text).map(|()| Self(text.to_owned()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(|why| D::Error::custom(format_args!("{text:?}: {why}")))
            }
        }
    };
}

checked_text! {
    /// A session's id: 1 to 64 of `[A-Za-z0-9._-]`, no leading dot or dash. Used once, for ever.
    SessionId
}
checked_text! {
    /// A session's name, for people; the same alphabet as an id. Unique among a domain's living sessions.
    SessionName
}

impl SessionId {
    /// A new id: 80 random bits in lower-case Crockford base 32, sixteen characters.
    ///
    /// # Errors
    /// If the kernel has no randomness to give (getrandom(2)).
    pub fn generate() -> Result<Self, IoError> {
        const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
        let mut random = [0; 16];
        sys::random(&mut random).context("read random bytes from", "getrandom(2)")?;
        Ok(Self(
            random
                .iter()
                .map(|byte| char::from(ALPHABET[usize::from(byte & 31)]))
                .collect(),
        ))
    }
}

macro_rules! sixteen_bytes {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// From its sixteen bytes.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }
            /// Its sixteen bytes.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = HexError;
            /// 32 hex digits; dashes between them are passed over, as in the kernel's uuid files.
            fn from_str(text: &str) -> Result<Self, HexError> {
                let digits: Vec<u8> = text
                    .chars()
                    .filter(|c| *c != '-')
                    .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()).ok_or(HexError))
                    .collect::<Result<_, _>>()?;
                let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair.iter().fold(0, |n, d| n << 4 | d)).collect();
                if digits.len() != 32 {
                    return Err(HexError);
                }
                bytes.try_into().map(Self).map_err(|_| HexError)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    self.0.serialize(serializer)
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
                } else {
                    <[u8; 16]>::deserialize(deserializer).map(Self)
                }
            }
        }
    };
}

/// A text that should be 32 hex digits is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not 32 hex digits")]
pub struct HexError;

sixteen_bytes! {
    /// The kernel's random id of this boot, /proc/sys/kernel/random/boot_id (proc_sys_kernel(5)).
    BootId
}
sixteen_bytes! {
    /// A random value in a leaf's attributes. It tells a leaf from a namesake; it is no secret and no authority.
    Nonce
}

impl BootId {
    /// This boot's id.
    ///
    /// # Errors
    /// If the file cannot be read or holds no id (a hidden /proc).
    pub fn current() -> Result<Self, IoError> {
        const PATH: &str = "/proc/sys/kernel/random/boot_id";
        // No process lives through a boot.
        static READ: OnceLock<BootId> = OnceLock::new();
        if let Some(read) = READ.get() {
            return Ok(*read);
        }
        let text = sys::read_file(PATH).context("read", PATH)?;
        let invalid = |_| std::io::Error::from(std::io::ErrorKind::InvalidData);
        let id = String::from_utf8_lossy(&text)
            .trim()
            .parse()
            .map_err(invalid)
            .context("read a boot id from", PATH)?;
        Ok(*READ.get_or_init(|| id))
    }
}

impl Nonce {
    /// A new random value.
    ///
    /// # Errors
    /// If the kernel has no randomness to give (getrandom(2)).
    pub fn generate() -> Result<Self, IoError> {
        let mut bytes = [0; 16];
        sys::random(&mut bytes).context("read random bytes from", "getrandom(2)")?;
        Ok(Self(bytes))
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// A cgroup's kernfs id: never reused within a boot (name_to_handle_at(2), equal to `st_ino` on 64-bit).
    CgroupId(u64)
}
number! {
    /// A user id, as this user namespace numbers it.
    Uid(u32)
}
number! {
    /// Nanoseconds of CLOCK_BOOTTIME (clock_gettime(2)): it goes on in suspend and no clock step moves it.
    BootTime(u64)
}

impl Uid {
    /// The superuser.
    pub const ROOT: Self = Self(0);
    /// What the kernel shows for an id that has no number in this user namespace (user_namespaces(7)).
    pub const OVERFLOW: Self = Self(65534);

    /// The effective user of this process.
    pub fn effective() -> Self {
        Self(nix::unistd::geteuid().as_raw())
    }
}

impl BootTime {
    /// The present moment.
    pub fn now() -> Self {
        sys::boot_time()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_to_sixty_four_of_a_small_alphabet() {
        for good in [
            "a",
            "01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "a.b_c-d",
            &"n".repeat(64),
        ] {
            assert_eq!(good.parse::<SessionId>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            ".",
            "..",
            "../x",
            "/etc/x",
            "a/../../b",
            "-x",
            "a b",
            "a\n",
            "\u{1b}[31m",
            "a\0",
            "é",
        ] {
            assert!(bad.parse::<SessionId>().is_err(), "{bad:?} was taken");
        }
        assert_eq!(
            "n".repeat(65).parse::<SessionName>(),
            Err(IdError::TooLong(65))
        );
    }

    #[test]
    fn a_boot_id_is_read_as_the_kernel_writes_it() {
        let text = "0f0e0d0c-0b0a-0908-0706-050403020100";
        let id: BootId = text.parse().unwrap();
        assert_eq!(id.to_string(), text.replace('-', ""));
        for bad in [
            "",
            "0",
            "0f0e0d0c-0b0a-0908-0706-0504030201",
            "zz0e0d0c-0b0a-0908-0706-050403020100",
        ] {
            assert!(bad.parse::<BootId>().is_err(), "{bad:?} was taken");
        }
        assert_eq!(BootId::current().unwrap(), BootId::current().unwrap());
    }

    #[test]
    fn generated_ids_are_valid_and_differ() {
        let (one, other) = (
            SessionId::generate().unwrap(),
            SessionId::generate().unwrap(),
        );
        assert_ne!(one, other);
        assert_eq!(one.as_str().parse::<SessionId>().unwrap(), one);
    }
}
