//! One message between two processes of ours that share a stream: a length, and JSON.

use std::io::{Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Code, OrCode, Result};

/// More than any message has: a record, or a refusal.
const MOST: u32 = 1 << 20;

pub(super) fn write(to: &mut impl Write, message: &impl Serialize) -> Result<()> {
    let bytes = serde_json::to_vec(message).or_code(Code::Internal)?;
    let length = u32::try_from(bytes.len()).or_code(Code::Internal)?;
    to.write_all(&length.to_ne_bytes())
        .or_code(Code::Internal)?;
    to.write_all(&bytes).or_code(Code::Internal)
}

/// Waits for a whole one.
///
/// # Errors
/// INTERNAL if the other side ended before.
pub(super) fn read<T: DeserializeOwned>(from: &mut impl Read) -> Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length).or_code(Code::Internal)?;
    let length = u32::from_ne_bytes(length).min(MOST);
    let mut bytes = vec![0; length as usize];
    from.read_exact(&mut bytes).or_code(Code::Internal)?;
    serde_json::from_slice(&bytes).or_code(Code::Internal)
}
