//! A file system whose one file never finishes closing: what a hostile client can hand to a helper. See fuse(4) and
//! include/uapi/linux/fuse.h, whose structures are written out here, in the machine's byte order.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const ENOSYS: i32 = 38;

/// The mounted file system. Dropping it ends it, and with it whoever waits for it.
#[derive(Debug)]
pub struct StuckFile {
    directory: PathBuf,
    device: Option<Arc<File>>,
    server: Option<std::thread::JoinHandle<()>>,
    asked_to_flush: Arc<AtomicBool>,
}

impl StuckFile {
    /// Mounts it.
    ///
    /// # Errors
    /// Where this machine has no FUSE, or this process may not mount.
    pub fn mount() -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let device = Arc::new(
            OpenOptions::new()
                .read(true)
                .write(true)
                .open("/dev/fuse")?,
        );
        let directory =
            std::env::temp_dir().join(format!("cgleaf-fuse{}-{number}", crate::scratch::tag()));
        fs::create_dir(&directory)?;
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
            device.as_raw_fd()
        );
        let mounted = mount(
            Some("cgleaf-test"),
            &directory,
            Some("fuse"),
            MsFlags::MS_NOSUID,
            Some(options.as_str()),
        );
        if let Err(errno) = mounted {
            fs::remove_dir(&directory)?;
            return Err(errno.into());
        }
        let asked_to_flush = Arc::new(AtomicBool::new(false));
        let (served, flag) = (device.clone(), asked_to_flush.clone());
        let server = std::thread::spawn(move || serve(&served, &flag));
        Ok(Self {
            directory,
            device: Some(device),
            server: Some(server),
            asked_to_flush,
        })
    }

    /// Opens the file. Whoever closes it waits for as long as this value lives, so the test itself must not.
    ///
    /// # Errors
    /// Where the file system is gone.
    pub fn open(&self) -> io::Result<std::mem::ManuallyDrop<File>> {
        File::open(self.directory.join("file")).map(std::mem::ManuallyDrop::new)
    }

    /// Whether anybody has begun to close the file.
    #[must_use]
    pub fn somebody_waits(&self) -> bool {
        self.asked_to_flush.load(Ordering::SeqCst)
    }
}

impl Drop for StuckFile {
    fn drop(&mut self) {
        let _ = umount2(&self.directory, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH);
        self.device = None;
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
        let _ = fs::remove_dir(&self.directory);
    }
}

/// Answers until the file system is unmounted. Only FLUSH, which close(2) waits for, is left without an answer.
fn serve(mut device: &File, asked_to_flush: &AtomicBool) {
    let mut request = vec![0; 1 << 17];
    loop {
        let length = match device.read(&mut request) {
            Ok(length) if length >= 40 => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            _ => return,
        };
        let field =
            |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().expect("four bytes"));
        let unique = &request[8..16];
        debug_assert_eq!(usize::try_from(field(0)).ok(), Some(length));
        let body = match field(4) {
            INIT => Ok(init()),
            LOOKUP => Ok(entry()),
            GETATTR => Ok(attributes(field(16))),
            OPEN | RELEASE => Ok(vec![0; if field(4) == OPEN { 16 } else { 0 }]),
            FORGET => continue,
            FLUSH => {
                asked_to_flush.store(true, Ordering::SeqCst);
                continue;
            }
            _ => Err(-ENOSYS),
        };
        let (error, body) = body.map_or_else(|error| (error, Vec::new()), |body| (0, body));
        let mut answer = u32::try_from(16 + body.len())
            .expect("small")
            .to_ne_bytes()
            .to_vec();
        answer.extend(error.to_ne_bytes());
        answer.extend(unique);
        answer.extend(body);
        if device.write_all(&answer).is_err() {
            return;
        }
    }
}

/// fuse_init_out of protocol 7.31: the sizes, and no feature.
fn init() -> Vec<u8> {
    let mut body = vec![0; 64];
    body[0..4].copy_from_slice(&7_u32.to_ne_bytes());
    body[4..8].copy_from_slice(&31_u32.to_ne_bytes());
    body[20..24].copy_from_slice(&4096_u32.to_ne_bytes());
    body
}

/// fuse_entry_out: node 2, remembered for an hour.
fn entry() -> Vec<u8> {
    let mut body = vec![0; 40];
    body[0..8].copy_from_slice(&2_u64.to_ne_bytes());
    body[16..24].copy_from_slice(&3600_u64.to_ne_bytes());
    body[24..32].copy_from_slice(&3600_u64.to_ne_bytes());
    body.extend(attribute(2));
    body
}

/// fuse_attr_out.
fn attributes(node: u32) -> Vec<u8> {
    let mut body = vec![0; 16];
    body[0..8].copy_from_slice(&3600_u64.to_ne_bytes());
    body.extend(attribute(node));
    body
}

/// fuse_attr: the root is a directory, everything else a file that anybody may read.
fn attribute(node: u32) -> Vec<u8> {
    let mode: u32 = if node == 1 { 0o040_755 } else { 0o100_644 };
    let mut body = vec![0; 88];
    body[0..8].copy_from_slice(&u64::from(node).to_ne_bytes());
    body[60..64].copy_from_slice(&mode.to_ne_bytes());
    body[64..68].copy_from_slice(&1_u32.to_ne_bytes());
    body
}
