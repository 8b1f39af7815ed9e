//! The system calls for which there is no safe wrapper: the one place of this crate where `unsafe` is allowed.
#![allow(unsafe_code)]

pub(crate) mod pidfd;
