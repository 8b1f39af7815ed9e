//! Messages to bytes and back. The only module that names bincode.

use bincode::config::{Configuration, Limit, standard};
use bincode::error::DecodeError;
use bincode::serde::{decode_from_slice, encode_to_vec};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Hello, Reply, Request, Welcome};

/// The most bytes that a client's packet may have.
pub const MAX_REQUEST: usize = 8 * 1024;
/// The most bytes that a helper's packet may have. It fits the default send buffer of a socket with room to spare.
pub const MAX_REPLY: usize = 64 * 1024;

/// Why a packet is no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// Longer than the limit of its direction.
    #[error("a packet of {0} bytes is over the limit")]
    TooLong(usize),
    /// The bytes do not decode.
    #[error("the packet is no message of this protocol: {0}")]
    Malformed(String),
    /// Bytes are left after the message.
    #[error("{0} bytes follow the message")]
    Trailing(usize),
    /// The message cannot be put in a packet.
    #[error("the message does not fit a packet: {0}")]
    Encode(String),
}

fn encode<T: Serialize>(message: &T, limit: usize) -> Result<Vec<u8>, CodecError> {
    let bytes = encode_to_vec(message, standard())
        .map_err(|error| CodecError::Encode(error.to_string()))?;
    if bytes.len() > limit {
        Err(CodecError::Encode(format!("{} bytes", bytes.len())))
    } else {
        Ok(bytes)
    }
}

type Limited<const N: usize> =
    Configuration<bincode::config::LittleEndian, bincode::config::Varint, Limit<N>>;

fn decode<T: DeserializeOwned, const N: usize>(bytes: &[u8]) -> Result<T, CodecError> {
    if bytes.len() > N {
        return Err(CodecError::TooLong(bytes.len()));
    }
    let config: Limited<N> = standard().with_limit::<N>();
    let (message, used) =
        decode_from_slice(bytes, config).map_err(|error| CodecError::Malformed(words(&error)))?;
    if used == bytes.len() {
        Ok(message)
    } else {
        Err(CodecError::Trailing(bytes.len() - used))
    }
}

/// What is wrong with the bytes, for people: bincode's own texts are for who debugs it.
fn words(error: &DecodeError) -> String {
    match error {
        // What the type itself says of its value, such as an id of its letters.
        DecodeError::OtherString(why) => why.clone(),
        DecodeError::Other(why) => (*why).to_owned(),
        DecodeError::UnexpectedEnd { .. } => "it ends in the middle of a value".to_owned(),
        DecodeError::LimitExceeded => "a length in it is over the limit".to_owned(),
        DecodeError::Utf8 { .. } => "a text in it is not UTF-8".to_owned(),
        DecodeError::InvalidBooleanValue(byte) => format!("{byte} is neither true nor false"),
        DecodeError::InvalidIntegerType { .. } => "a number in it is too large".to_owned(),
        _ => "a value in it is none of its type".to_owned(),
    }
}

macro_rules! direction {
    ($message:ty, $limit:expr, $encode:ident, $decode:ident) => {
        /// Encodes this message for one packet.
        ///
        /// # Errors
        /// [`CodecError::Encode`] if it would be over the limit of its direction.
        pub fn $encode(message: &$message) -> Result<Vec<u8>, CodecError> {
            encode(message, $limit)
        }

        /// Decodes one packet. It never panics, whatever the bytes.
        ///
        /// # Errors
        /// [`CodecError`], for everything but exactly one message.
        pub fn $decode(bytes: &[u8]) -> Result<$message, CodecError> {
            decode::<$message, { $limit }>(bytes)
        }
    };
}

direction!(Hello, MAX_REQUEST, encode_hello, decode_hello);
direction!(Request, MAX_REQUEST, encode_request, decode_request);
direction!(Welcome, MAX_REPLY, encode_welcome, decode_welcome);
direction!(Reply, MAX_REPLY, encode_reply, decode_reply);
