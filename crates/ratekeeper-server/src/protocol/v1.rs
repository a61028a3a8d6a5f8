//! The handlers of `ratekeeper.v1`, our own protocol, which gRPC and JSON share: both read their
//! messages as the same requests, and write the same answers.

mod answer;
mod check;
mod hold;
mod limit;
mod refusal;
mod request;
mod round;
mod subject;
mod unmatched;

pub(crate) use answer::{AnsweredBy, CheckAnswer, HeldAnswer, StatusAnswer, Statuses};
pub(crate) use check::{Batch, CHECKS_MAX};
pub(crate) use hold::{Released, Renewed, Settlement};
pub(crate) use limit::{
    DOMAIN as LIMIT_DOMAIN, LimitAnswer, LimitRequest, LimitsAnswer, LimitsRequest, WindowText,
};
pub(crate) use ratekeeper_proto::json::Object;
pub(crate) use refusal::{Reason, Refusal};
pub(crate) use request::{
    AcquireRequest, BatchRequest, CancelRequest, CheckRequest, CommitRequest, DescriptorRequest,
    EntryRequest, OverrideRequest, PermitRequest, RefundRequest, ReserveRequest,
};
pub(crate) use subject::Subject;
pub(crate) use unmatched::Unmatched;

use crate::access::callers::Power;
use crate::app::App;
use crate::logs::denials::CheckOrigin;

/// The sender of a request, as its codec knows it.
pub(crate) trait Sender {
    type Error: From<Refusal>;

    /// Returns the name of the sender if it has the permission.
    fn permit(&self, power: Power) -> Result<&str, Self::Error>;

    /// The facts that are known of the call.
    fn origin(&self) -> CheckOrigin<'_>;
}

/// The methods, for one sender.
#[derive(Debug)]
pub(crate) struct Api<'a, C> {
    app: &'a App,
    sender: &'a C,
}

impl<'a, C: Sender> Api<'a, C> {
    pub(crate) const fn new(app: &'a App, sender: &'a C) -> Self {
        Self { app, sender }
    }
}

fn require_rules<'d>(app: &App, domains: impl IntoIterator<Item = &'d str>) -> Result<(), Refusal> {
    app.require_rules(domains).map_err(Refusal::from)
}
