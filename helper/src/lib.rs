//! The helper, as a library.

pub mod sandbox;
mod sys;
