//! The protocol between a frontend and a helper (DESIGN 3.2): one bincode message a packet, over AF_UNIX
//! SOCK_SEQPACKET. A client sends [`Hello`] and its first [`Request`] back to back; the helper answers with
//! [`Welcome`] and then with one [`Reply`] for each request, in their order.

mod channel;
mod codec;
mod messages;
mod refusal;

pub use channel::{Packet, receive, receive_bytes, send};
pub use codec::{
    CodecError, MAX_REPLY, MAX_REQUEST, decode_hello, decode_reply, decode_request, decode_welcome,
};
pub use codec::{encode_hello, encode_reply, encode_request, encode_welcome};
pub use messages::{
    Created, Enforcement, FreezeFlag, Hello, LeafState, Member, MembersPage, Mode, NewSession,
    Opened, Removal, Reply, Request, SessionEntry, Status, Target, Thawed, VerdictReport, Welcome,
};
pub use refusal::{Refusal, RefusalCode};

/// What the first four bytes of either side's first message say: `cglf`.
pub const MAGIC: u32 = 0x6367_6c66;

/// The protocol's version. Hello, Welcome, list, open, kill and remove are the same in all of them.
pub const PROTOCOL: u16 = 1;

/// The build, for messages and records: the package's version.
pub const BUILD: &str = env!("CARGO_PKG_VERSION");
