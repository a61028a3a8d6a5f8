//! The rest of a request that was answered before all of it had arrived.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// The longest that the rest is waited for.
const TIME_MAX: Duration = Duration::from_secs(5);

/// The most of it that is read, in bytes.
const BYTES_MAX: usize = 256 << 10;

/// Reads the rest of a body over HTTP/2 and discards it. Unread, its stream would be reset after the answer, which
/// RFC 9113 (section 8.1) allows, but some clients (curl 7.88 for one) then report that the request failed. A client
/// that keeps on sending is reset all the same.
pub(super) fn discard(mut incoming: Incoming) {
    // Without a runtime, the process is about to end.
    let Ok(runtime) = Handle::try_current() else {
        return;
    };
    runtime.spawn(timeout(TIME_MAX, async move {
        let mut left = BYTES_MAX;
        while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut incoming).poll_frame(cx)).await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(length) else {
                return;
            };
            left = rest;
        }
    }));
}
