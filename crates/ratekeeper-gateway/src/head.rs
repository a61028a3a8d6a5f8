//! The heads of requests and answers: only unambiguous ones pass, and hop-by-hop fields are not
//! forwarded.

mod admit;
mod forward;
mod hop_by_hop;

pub(crate) use admit::admit;
pub(crate) use forward::{
    Inbound, as_http1, as_http2, clean_trailers, forward, frame_http1, hop, of_answer,
};
