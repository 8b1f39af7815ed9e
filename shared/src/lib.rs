//! What both programs of cgleaf agree on.

pub mod process;
mod sys;
