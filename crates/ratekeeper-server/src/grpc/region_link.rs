//! The end of a link that other regions' nodes connect to.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt, stream};
use http::header::AUTHORIZATION;
use ratekeeper_proto::ratekeeper::v1::region_service_server::RegionService;
use ratekeeper_proto::ratekeeper::v1::{LoanAnswers, LoanAsks};
use tonic::{Request, Response, Status, Streaming};

use crate::access::callers::{Denied, Power};
use crate::app::App;
use crate::listen::Peer;
use crate::regions::{RegionLoans, TOGETHER};
use crate::v1::Refusal as V1Refusal;

/// The most asks in a message.
const ASKS_MAX: usize = 1_000;

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
            Ok(it.admitted())
        });
        match admitted {
            Ok(admitted) if admitted.is_by_place && headers.contains_key(http::header::ORIGIN) => {
                let denied = Denied::Forbidden("web pages may not ask for this".to_owned());
                Err(V1Refusal::from(denied).into())
            }
            Ok(admitted) => Ok(admitted.name.into()),
            Err(denied) => Err(V1Refusal::from(denied).into()),
        }
    }

    /// The place of the region that asks, which `caller` has to be.
    fn place(loans: &RegionLoans, first: &LoanAsks, caller: &str) -> Result<usize, Status> {
        if !caller.is_empty() && *caller != *first.region {
            let message = format!("the caller {caller:?} is not the region {:?}", first.region);
            return Err(Status::permission_denied(message));
        }
        let regions = loans.regions();
        let mut all = regions.all().iter();
        let place = all.position(|region| *region.name == *first.region);
        let place = place.filter(|place| *place != regions.own_place());
        let Some(place) = place else {
            let message = format!("{:?} is no other region here", first.region);
            return Err(Status::failed_precondition(message));
        };
        if first.weights_version != regions.version() {
            let message = format!(
                "the weights of {} have version {}, and ours {}",
                first.region,
                first.weights_version,
                regions.version()
            );
            return Err(Status::failed_precondition(message));
        }
        Ok(place)
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
                "this node lends nothing: it has no rule with `regions: bounded`, or no `regions`",
            ));
        };
        let mut asks = request.into_inner();
        let first = asks.message().await?;
        let first = first.ok_or_else(|| Status::invalid_argument("the stream has no message"))?;
        let place = Self::place(&loans, &first, &caller)?;
        let version = loans.regions().version();
        // A message is read once the one before was answered, so that a flood waits where it comes from.
        let drain = Arc::clone(&self.app.drain);
        let answers = asks.then(move |asks| {
            let loans = Arc::clone(&loans);
            async move {
                let asks = asks?.asks;
                if asks.len() > ASKS_MAX {
                    return Err(Status::invalid_argument("more than 1,000 asks together"));
                }
                let answers = stream::iter(asks).map(|ask| loans.lend(place, ask));
                let answers = answers.buffered(TOGETHER).collect().await;
                Ok(LoanAnswers {
                    weights_version: version,
                    answers,
                })
            }
        });
        let hello = stream::iter([Ok(LoanAnswers {
            weights_version: version,
            answers: Vec::new(),
        })]);
        let answers = hello.chain(answers);
        let answers = answers.take_until(async move { drain.begun().await });
        Ok(Response::new(Box::pin(answers)))
    }
}
