//! Whether a session is still there after its user's last logout: what lies beneath `user@UID.service` ends some seconds
//! after it, unless the user lingers (loginctl(1)).

use std::path::Path;

use cgleaf_shared::id::Uid;

use crate::records::Record;

/// Whether it survives; `None` where that cannot be told.
pub fn survives_logout(record: &Record) -> Option<bool> {
    let Some(attestation) = &record.attestation else {
        return None;
    };
    let uid = Uid::effective();
    let manager = format!("user@{uid}.service");
    let beneath = attestation
        .leaf_path
        .as_str()
        .split('/')
        .any(|part| part == manager);
    if !beneath {
        return Some(true);
    }
    lingers(uid)
}

/// Whether a user lingers; `None` if he has no name.
pub(crate) fn lingers(uid: Uid) -> Option<bool> {
    let name = name_of(uid)?;
    Some(Path::new("/var/lib/systemd/linger").join(name).exists())
}

/// A user's name by /etc/passwd, or what the environment says: the C library's lookup may load modules, which a static
/// program cannot.
fn name_of(uid: Uid) -> Option<String> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    passwd
        .lines()
        .find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let number = fields.nth(1)?;
            (number == uid.to_string()).then(|| name.to_owned())
        })
        .or_else(|| std::env::var("USER").ok())
        .filter(|name| !name.is_empty() && !name.contains('/'))
}
