//! The only place of this crate where `unsafe` may stand: system calls that no library wraps.

#![allow(unsafe_code)]

pub(crate) mod landlock;
