//! The end of a link that other regions' nodes connect to.
//!
//! A link says within a moment who it is from, and then something whole every few seconds: whoever trickles bytes, or is
//! gone without a word, holds nothing here for longer than [`SILENCE`].

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use http::header::AUTHORIZATION;
use ratekeeper_core::region::REGION_NAME_MAX;
use ratekeeper_proto::ratekeeper::v1::region_service_server::RegionService;
use ratekeeper_proto::ratekeeper::v1::{LoanAnswers, LoanAsks};
use tokio::time::timeout;
use tonic::{Request, Response, Status, Streaming};

use crate::access::callers::Power;
use crate::app::App;
use crate::listen::Peer;
use crate::protocol::v1::Refusal as V1Refusal;
use crate::regions::{RegionLoans, TOGETHER};

/// The most asks, and the most totals, in a message.
const ASKS_MAX: usize = 1_000;

/// The time within which a link says who it is from.
const HELLO: Duration = Duration::from_secs(5);

/// The time without a whole message after which a link is ended: the other end has one to send every two seconds.
const SILENCE: Duration = Duration::from_secs(15);

/// The service on top of an [`App`].
#[derive(Debug)]
pub(crate) struct LinkService {
    app: Arc<App>,
    /// The peer to assume where the connection names none.
    unknown: Peer,
}

type Answers = Pin<Box<dyn Stream<Item = Result<LoanAnswers, Status>> + Send>>;

impl LinkService {
    pub(crate) const fn new(app: Arc<App>, unknown: Peer) -> Self {
        Self { app, unknown }
    }

    /// The name of whoever sends `request`, who has to be allowed to; empty if it is anyone on this host.
    fn admit<T>(&self, request: &Request<T>) -> Result<Box<str>, Status> {
        let peer = request.extensions().get().unwrap_or(&self.unknown);
        let headers = request.metadata().as_ref();
        let authorization = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        let identified = self.app.callers.identify(Some(peer), authorization);
        let admitted = identified.and_then(|it| {
            it.may(Power::Regions)?;
            it.admitted().unless_page(headers)
        });
        Ok(admitted.map_err(V1Refusal::from)?.name.into())
    }

    /// The place of the region that asks, which `caller` has to be.
    fn place(loans: &RegionLoans, first: &LoanAsks, caller: &str) -> Result<usize, Status> {
        let name = told(&first.region);
        if !caller.is_empty() && *caller != *first.region {
            let message = format!("the caller {caller:?} is not the region {name}");
            return Err(Status::permission_denied(message));
        }
        let regions = loans.regions();
        let mut all = regions.all().iter();
        let place = all.position(|region| *region.name == *first.region);
        let place = place.filter(|place| *place != regions.own_place());
        let Some(place) = place else {
            let message = format!("{name} is no other region here");
            return Err(Status::failed_precondition(message));
        };
        if first.weights_version != regions.version() {
            let (theirs, ours) = (first.weights_version, regions.version());
            let message = format!("the weights of {name} have version {theirs}, and ours {ours}");
            return Err(Status::failed_precondition(message));
        }
        // Builds before this one do not tell it.
        if ![0, regions.hash()].contains(&first.regions_hash) {
            let message =
                format!("the regions of {name} are others than ours, of the same version");
            return Err(Status::failed_precondition(message));
        }
        Ok(place)
    }

    /// Reads who a link is from, and takes it in.
    async fn open(
        loans: &Arc<RegionLoans>,
        asks: &mut Streaming<LoanAsks>,
        caller: &str,
    ) -> Result<OpenLink, Status> {
        let first = heard(asks, HELLO).await?;
        let first = first.ok_or_else(|| Status::invalid_argument("the stream has no message"))?;
        let place = Self::place(loans, &first, caller)?;
        loans.hear(place);
        OpenLink::new(loans, place)
    }
}

/// The next whole message, which has to be there within `patience`.
async fn heard(
    asks: &mut Streaming<LoanAsks>,
    patience: Duration,
) -> Result<Option<LoanAsks>, Status> {
    let message = timeout(patience, asks.message()).await;
    message.map_err(|_| {
        let seconds = patience.as_secs();
        Status::deadline_exceeded(format!("the link has said nothing whole for {seconds} s"))
    })?
}

/// A name that a peer gave, as far as a name of a region goes.
fn told(name: &str) -> String {
    let mut shown: String = name.chars().take(REGION_NAME_MAX).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

/// A link that is open. It counts among the links of its region until it is dropped.
struct OpenLink {
    loans: Arc<RegionLoans>,
    place: usize,
}

impl OpenLink {
    fn new(loans: &Arc<RegionLoans>, place: usize) -> Result<Self, Status> {
        if !loans.peers()[place].enter() {
            let message = "this node has as many links to your region as it takes";
            return Err(Status::resource_exhausted(message));
        }
        Ok(Self {
            loans: Arc::clone(loans),
            place,
        })
    }

    /// Reads the next message and answers it; [`None`] at the end of the link.
    async fn next(&self, asks: &mut Streaming<LoanAsks>) -> Result<Option<LoanAnswers>, Status> {
        let Some(LoanAsks { asks, totals, .. }) = heard(asks, SILENCE).await? else {
            return Ok(None);
        };
        if asks.len() > ASKS_MAX || totals.len() > ASKS_MAX {
            return Err(Status::invalid_argument(
                "more than 1,000 asks, or totals, together",
            ));
        }
        self.loans.hear(self.place);
        let until = RegionLoans::answer_until();
        let answers = stream::iter(asks).map(|ask| self.loans.lend(self.place, ask, until));
        let totals = stream::iter(totals).map(|total| self.loans.told(self.place, total, until));
        let answers = answers.buffered(TOGETHER).collect();
        let totals = totals.buffered(TOGETHER).collect();
        let (answers, totals) = tokio::join!(answers, totals);
        Ok(Some(LoanAnswers {
            answers,
            totals,
            ..self.hello()
        }))
    }

    fn hello(&self) -> LoanAnswers {
        LoanAnswers {
            weights_version: self.loans.regions().version(),
            ..LoanAnswers::default()
        }
    }
}

impl Drop for OpenLink {
    fn drop(&mut self) {
        self.loans.peers()[self.place].leave();
    }
}

#[tonic::async_trait]
impl RegionService for LinkService {
    type LinkStream = Answers;

    async fn link(
        &self,
        request: Request<Streaming<LoanAsks>>,
    ) -> Result<Response<Answers>, Status> {
        let caller = self.admit(&request)?;
        let Some(loans) = self.app.region_loans() else {
            return Err(Status::failed_precondition(
                "this node shares nothing: it has no rule with `regions: bounded` or `counted`, or no `regions`",
            ));
        };
        let mut asks = request.into_inner();
        let opened = Self::open(&loans, &mut asks, &caller).await;
        let link = opened.inspect_err(|_| loans.refuse_link())?;
        let hello = stream::iter([Ok(link.hello())]);
        // A message is read once the one before was answered, so that a flood waits where it comes from.
        let answers = stream::try_unfold((link, asks), |(link, mut asks)| async move {
            let answers = link.next(&mut asks).await?;
            Ok(answers.map(|answers| (answers, (link, asks))))
        });
        let drain = Arc::clone(&self.app.drain);
        let answers = hello.chain(answers);
        let answers = answers.take_until(async move { drain.begun().await });
        Ok(Response::new(Box::pin(answers)))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use prost::Message;
    use ratekeeper_proto::Codec;
    use tonic::codec::Codec as _;

    use super::*;

    /// A link on which these bytes come, and nothing after them, for ever.
    fn link_with(bytes: Vec<u8>) -> Streaming<LoanAsks> {
        let frame = Ok::<_, Infallible>(Frame::data(Bytes::from(bytes)));
        let body = StreamBody::new(stream::iter([frame]).chain(stream::pending()));
        let decoder = Codec::<LoanAnswers, LoanAsks>::default().decoder();
        Streaming::new_request(decoder, body, None, None)
    }

    /// A message as it is on the wire.
    fn framed(asks: &LoanAsks) -> Vec<u8> {
        let bytes = asks.encode_to_vec();
        let length = u32::try_from(bytes.len()).expect("it is short");
        let head = std::iter::once(0).chain(length.to_be_bytes());
        head.chain(bytes).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn half_of_a_message_holds_a_link_for_a_moment_only() {
        let asks = LoanAsks {
            region: "us".to_owned(),
            ..LoanAsks::default()
        };
        let whole = framed(&asks);
        for length in 0..whole.len() {
            let begun = tokio::time::Instant::now();
            let refused = heard(&mut link_with(whole[..length].to_vec()), HELLO).await;
            let refused = refused.expect_err("half of a message is none");
            assert_eq!(refused.code(), tonic::Code::DeadlineExceeded);
            assert_eq!(begun.elapsed().as_secs(), HELLO.as_secs());
        }
        let read = heard(&mut link_with(whole), HELLO).await;
        assert_eq!(read.expect("it is whole"), Some(asks));
    }

    #[test]
    fn a_name_is_repeated_as_far_as_names_go() {
        assert_eq!(told("us"), "\"us\"");
        assert_eq!(told("u\ns"), "\"u\\ns\"");
        let long = "ä".repeat(4 << 20);
        assert_eq!(told(&long).chars().count(), 2 + REGION_NAME_MAX + 1);
    }
}
