//! What both programs of cgleaf agree on.
