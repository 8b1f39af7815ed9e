//! A private helper: made of the sandbox that its caller is in, at a socket that nobody finds by its place.

use cgleaf_shared::wire::Request;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;

use super::super::super::context::Context;
use crate::client::{Client, all_places};

/// How long one may take to clean up, in milliseconds.
const LIMIT: u16 = 2_000;

/// Whether that is one.
pub(super) fn is_one(context: &Context, client: &Client) -> bool {
    let places = all_places(&context.base, context.socket.as_deref());
    places.iter().all(|(_, path)| path != client.path())
}

/// Ends it, and waits until its socket is gone: it was started for doctor alone. It would end by itself, a little later.
pub(super) fn end(context: &Context, mut client: Client) {
    if is_one(context, &client) && client.call(&Request::Stop).is_ok() {
        // It closes its connections last.
        let mut fds = [PollFd::new(client.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, PollTimeout::from(LIMIT));
    }
}
