//! Links to other regions, which lend each other parts of limits.
//!
//! ```text
//!   connect ----------> say who we are ----------> asks out, answers in, in batches
//!      ^                      |                         |
//!      `------ back-off <-----+---- refused, broken, or silent while asked
//! ```
//!
//! Asks that wait for a link that is not there are dropped: the next one says all that they did.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_proto::ratekeeper::v1::region_service_client::RegionServiceClient;
use ratekeeper_proto::ratekeeper::v1::{LoanAnswers, LoanAsks};
use ratekeeper_server::{PeerLink, RegionLoans};
use ratekeeper_tls::TlsFiles;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Streaming};

use crate::backoff::Backoff;
use crate::grpc_connection::{GrpcConnection, describe};

/// The most asks in a message.
const TOGETHER: usize = 256;

/// The time for which asks are gathered into one message.
const GATHERED: Duration = Duration::from_millis(10);

/// The time after which a link that does not answer is given up.
const SILENCE: Duration = Duration::from_secs(5);

/// The most bytes of a message.
const BYTES_MAX: usize = 64 << 10;

/// A link from this node to another region.
#[derive(Debug)]
pub struct RegionLink {
    loans: Arc<RegionLoans>,
    /// The place of the region among all.
    place: usize,
    /// Its nodes; tried one after the other.
    nodes: Vec<GrpcConnection>,
}

/// The fault of a node's address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not the address of a node; write http://HOST:PORT, or https:// for TLS")]
pub struct RegionAddressError(String);

impl RegionLink {
    /// A link to the region at `place` of all, whose nodes are at `addresses`; not connected yet.
    ///
    /// # Errors
    /// An address is none.
    pub fn new(
        loans: &Arc<RegionLoans>,
        place: usize,
        addresses: &[Box<str>],
        tls: &TlsFiles,
    ) -> Result<Self, RegionAddressError> {
        let nodes = addresses.iter().map(|address| {
            let node = GrpcConnection::new(address, None, tls);
            node.ok_or_else(|| RegionAddressError(address.to_string()))
        });
        Ok(Self {
            loans: Arc::clone(loans),
            place,
            nodes: nodes.collect::<Result<_, _>>()?,
        })
    }

    /// Keeps the link up, for ever.
    pub async fn run(self) {
        let Some(mut link) = self.loans.peers()[self.place].link() else {
            return;
        };
        let mut backoff = Backoff::default();
        for node in self.nodes.iter().cycle() {
            let why = self.follow(node, &mut link, &mut backoff).await;
            link.failed(&why);
            sleep(backoff.next()).await;
        }
    }

    /// Uses a connection to `node` until it ends, and returns why it did.
    async fn follow(
        &self,
        node: &GrpcConnection,
        link: &mut PeerLink<'_>,
        backoff: &mut Backoff,
    ) -> String {
        let channel = match timeout(SILENCE, node.open()).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(why)) => return why,
            Err(_) => return "it does not answer".to_owned(),
        };
        let (asks, waiting) = mpsc::channel(1);
        let regions = self.loans.regions();
        let hello = LoanAsks {
            region: regions.own().name.to_string(),
            weights_version: regions.version(),
            asks: Vec::new(),
        };
        if asks.send(hello).await.is_err() {
            return "it ended".to_owned();
        }
        let mut client = RegionServiceClient::new(channel).max_decoding_message_size(BYTES_MAX);
        let called = client.link(Request::new(ReceiverStream::new(waiting)));
        let mut answers = match timeout(SILENCE, called).await {
            Ok(Ok(answers)) => answers.into_inner(),
            Ok(Err(status)) => return describe(&status),
            Err(_) => return "it does not answer".to_owned(),
        };
        // The other side says first that it has taken ours.
        match timeout(SILENCE, answers.message()).await {
            Ok(Ok(Some(_))) => {}
            Ok(Ok(None)) => return "it ended".to_owned(),
            Ok(Err(status)) => return describe(&status),
            Err(_) => return "it does not answer".to_owned(),
        }
        link.connected();
        backoff.reset();
        self.exchange(link, asks, answers).await
    }

    async fn exchange(
        &self,
        link: &mut PeerLink<'_>,
        out: mpsc::Sender<LoanAsks>,
        mut answers: Streaming<LoanAnswers>,
    ) -> String {
        // The time until which an answer has to come, while one is waited for.
        let mut until: Option<Instant> = None;
        loop {
            let silence = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                answer = answers.message() => match answer {
                    Ok(Some(LoanAnswers { answers, .. })) => {
                        until = None;
                        for answer in answers {
                            self.loans.answered(self.place, answer).await;
                        }
                    }
                    Ok(None) => return "it ended".to_owned(),
                    Err(status) => return describe(&status),
                },
                asks = link.next(TOGETHER, GATHERED), if out.capacity() > 0 => {
                    if asks.is_empty() {
                        return "nothing is asked any more".to_owned();
                    }
                    let asks = LoanAsks { asks, ..LoanAsks::default() };
                    // There is room, and this is the only sender.
                    if out.try_send(asks).is_err() {
                        return "it ended".to_owned();
                    }
                    until.get_or_insert_with(|| Instant::now() + SILENCE);
                }
                room = out.reserve(), if out.capacity() == 0 => {
                    if room.is_err() {
                        return "it ended".to_owned();
                    }
                }
                () = silence => return "it does not answer".to_owned(),
            }
        }
    }
}
