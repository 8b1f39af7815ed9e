//! The explored simulation: the real engine of the group tier over a simulated kernel.

pub mod check;
pub mod explore;
pub mod kernel;
pub mod mutants;
pub mod world;
