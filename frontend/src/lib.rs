//! The frontend, as a library.
