//! What the integration tests share.

pub mod conformance;
pub mod crash;
pub mod doctor;
pub mod frontend;
pub mod fuse;
pub mod fuzzing;
pub mod generated;
pub mod group;
pub mod helper;
pub mod lab;
pub mod packaging;
pub mod pages;
pub mod probe;
pub mod scratch;
pub mod session;
pub mod sim;
pub mod steps;
pub mod sys;
pub mod terminal;
