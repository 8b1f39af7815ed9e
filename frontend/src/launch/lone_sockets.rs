//! What helpers leave that were killed and had a socket of their own: nobody need ever take the name of one again, or its lock.
//! A private helper's is random, and that of a directory goes with the directory, as a unit's that ran once.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use cgleaf_shared::socket;

const PREFIX: &str = "private-";
const LOCK_SUFFIX: &str = ".lock";

/// A helper takes its lock right after it has made the file; one of this age is taken, or is nobody's, or somebody opens it again
/// just now, who then sees that it has gone.
const LEAST_AGE: Duration = Duration::from_secs(60);

/// The name of a new private one.
pub(super) fn name(random: &str) -> String {
    format!("{PREFIX}{random}.sock")
}

/// Removes those in a directory of ours whose helper has ended. What cannot be removed stays.
pub(super) fn sweep(directory: &Path) {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    for lock in entries.map(|entry| entry.path()) {
        let name = lock.file_name().and_then(|name| name.to_str());
        let socket = name
            .and_then(|name| name.strip_suffix(LOCK_SUFFIX))
            .filter(|name| name.starts_with(PREFIX) || socket::is_of_a_directory(name));
        // Kept while the files go.
        if let (Some(socket), Some(_lock)) = (socket, taken(&lock)) {
            let _ = std::fs::remove_file(directory.join(socket));
            let _ = std::fs::remove_file(&lock);
        }
    }
}

/// The lock, if nobody has it.
fn taken(path: &Path) -> Option<File> {
    let lock = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .ok()?;
    let made = lock.metadata().ok()?.modified().ok()?;
    let is_old = made.elapsed().is_ok_and(|age| age >= LEAST_AGE);
    (is_old && lock.try_lock().is_ok()).then_some(lock)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn only_what_nobody_has_and_nobody_is_about_to_take_goes() {
        let name = format!("cgleaf-private-sockets-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).expect("a directory");
        let make = |name: &str, is_old: bool| {
            let path = directory.join(name);
            let file = File::create(&path).expect("make it");
            if is_old {
                let then = SystemTime::now() - 2 * LEAST_AGE;
                file.set_modified(then).expect("utimensat");
            }
            (path, file)
        };
        let dead = make("private-a.sock.lock", true).0;
        let its_socket = make("private-a.sock", true).0;
        let (held, holder) = make("private-b.sock.lock", true);
        holder.lock().expect("the lock");
        let new = make("private-c.sock.lock", false).0;
        let shared = make("direct.sock.lock", true).0;
        let of_a_directory = socket::name_for(Path::new("/sys/fs/cgroup/a"));
        let gone = make(&format!("{of_a_directory}.lock"), true).0;
        let its_own = make(&of_a_directory, true).0;
        sweep(&directory);
        let kept = [&held, &new, &shared].map(|path| path.exists());
        let swept = [&dead, &its_socket, &gone, &its_own].map(|path| path.exists());
        let _ = std::fs::remove_dir_all(&directory);
        assert_eq!((kept, swept), ([true; 3], [false; 4]));
    }
}
