//! Links to other regions, which lend each other parts of limits, or count limits together.
//!
//! ```text
//!   connect ----------> say who we are ----------> asks and totals out, answers in, in batches
//!      ^                      |                         |
//!      `------ back-off <-----+---- refused, broken, or silent while asked
//! ```
//!
//! A message that waits for a link that is not there is dropped: the next ask, or total, says all that it did.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_proto::ratekeeper::v1::region_service_client::RegionServiceClient;
use ratekeeper_proto::ratekeeper::v1::{LoanAnswers, LoanAsks};
use ratekeeper_server::{PeerLink, RegionLoans, ToRegion};
use ratekeeper_tls::TlsFiles;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Streaming};

use crate::backoff::Backoff;
use crate::grpc_connection::{GrpcConnection, describe};

/// The most asks and totals in a message.
const TOGETHER: usize = 256;

/// The time for which they are gathered into one message.
const GATHERED: Duration = Duration::from_millis(10);

/// The time after which a link that does not answer is given up.
const SILENCE: Duration = Duration::from_secs(5);

/// The longest pause before the next attempt: a region that is back lends again soon.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The time after which an empty message asks whether the other side is still there.
const PING: Duration = Duration::from_secs(2);

/// The most messages without an answer yet.
const UNANSWERED_MAX: usize = 64;

/// The most answers that wait to be taken in. What is dropped is said again: by the next ask, or by the region that posts it.
const TAKEN_MAX: usize = 64;

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

    /// Keeps the link up, for ever. May be called again after a panic ended it.
    pub async fn run(&self) {
        let Some(mut link) = self.loans.peers()[self.place].link() else {
            return;
        };
        let mut backoff = Backoff::up_to(PAUSE_MAX);
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
            regions_hash: regions.hash(),
            ..LoanAsks::default()
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
            Ok(Ok(Some(_))) => self.loans.hear(self.place),
            Ok(Ok(None)) => return "it ended".to_owned(),
            Ok(Err(status)) => return describe(&status),
            Err(_) => return "it does not answer".to_owned(),
        }
        link.connected();
        backoff.reset();
        let (taken, takes) = mpsc::channel(TAKEN_MAX);
        tokio::select! {
            why = self.exchange(link, asks, answers, taken) => why,
            () = self.take_in(takes) => "it ended".to_owned(),
        }
    }

    /// Takes answers in. That waits for the store, for which the link does not.
    async fn take_in(&self, mut answers: mpsc::Receiver<LoanAnswers>) {
        while let Some(LoanAnswers {
            answers, totals, ..
        }) = answers.recv().await
        {
            let answers = self.loans.answered(self.place, answers);
            tokio::join!(answers, self.loans.told_back(self.place, totals));
        }
    }

    async fn exchange(
        &self,
        link: &mut PeerLink<'_>,
        out: mpsc::Sender<LoanAsks>,
        mut answers: Streaming<LoanAnswers>,
        taken: mpsc::Sender<LoanAnswers>,
    ) -> String {
        // When each message left that has no answer yet. Answers come in the order of their messages.
        let mut unanswered: VecDeque<Instant> = VecDeque::new();
        let (mut said, mut heard) = (Instant::now(), Instant::now());
        loop {
            // A store that hangs over there makes each answer late, and the link is alive.
            let silence = unanswered.front().map(|left| heard.max(*left) + SILENCE);
            let may_send = out.capacity() > 0 && unanswered.len() < UNANSWERED_MAX;
            let parts = tokio::select! {
                answer = answers.message() => match answer {
                    Ok(Some(answer)) => {
                        self.loans.hear(self.place);
                        heard = Instant::now();
                        // Answers may be repeated.
                        if let Some(left) = unanswered.pop_front() {
                            link.answered_in(left.elapsed());
                        }
                        // None waits if the store has not answered for long.
                        let _ = taken.try_send(answer);
                        continue;
                    }
                    Ok(None) => return "it ended".to_owned(),
                    Err(status) => return describe(&status),
                },
                parts = link.next(TOGETHER, GATHERED), if may_send => parts,
                () = sleep_until(said + PING), if may_send && unanswered.is_empty() => Vec::new(),
                room = out.reserve(), if out.capacity() == 0 => match room {
                    Ok(_) => continue,
                    Err(_) => return "it ended".to_owned(),
                },
                () = until(silence) => return "it does not answer".to_owned(),
            };
            said = Instant::now();
            unanswered.push_back(said);
            let mut asks = LoanAsks::default();
            for part in parts {
                match part {
                    ToRegion::Ask(ask) => asks.asks.push(ask),
                    ToRegion::Total(total) => asks.totals.push(total),
                }
            }
            // There is room, and this is the only sender.
            if out.try_send(asks).is_err() {
                return "it ended".to_owned();
            }
        }
    }
}

/// Waits until then, or for ever.
async fn until(then: Option<Instant>) {
    match then {
        Some(then) => sleep_until(then).await,
        None => std::future::pending().await,
    }
}
