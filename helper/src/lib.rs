//! The helper, as a library.
