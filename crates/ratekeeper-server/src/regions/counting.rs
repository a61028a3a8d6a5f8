//! Limits that regions count together: what this node posts, and what it takes in.
//!
//! A post says what the region has counted in a window, and is answered by what the other one has. Both keep the larger
//! total in their stores, which decide by it; see [`ratekeeper_core::region::counted`].

use std::time::Duration;

use futures_util::{StreamExt, stream};
use ratekeeper_core::region::counted::{CountedSums, RegionPost};
use ratekeeper_proto::ratekeeper::v1::RegionTotal;
use ratekeeper_proto::ratekeeper::v1::loan_answer::Refusal;
use ratekeeper_store::{CounterKey, LoanCounter, LoanState, boot_time};
use tokio::time::{Instant, interval, timeout, timeout_at};

use super::explained::{Counts, counted_sentence};
use super::totals::WindowTotal;
use super::{RegionLoans, TOGETHER, later};

/// The time between two of the last looks.
const LAST_LOOKS: Duration = Duration::from_millis(20);

impl RegionLoans {
    /// Records a whole message of the region at `place`.
    pub fn hear(&self, place: usize) {
        self.heard.hear(place, boot_time());
    }

    /// Posts what was counted since the last looks, and waits until the regions that are linked know it, no longer than
    /// `within`.
    pub(crate) async fn leave(&self, within: Duration) {
        // If time runs out, other nodes of this region post what is missing once they are asked for it.
        let _ = timeout(within, self.post_last()).await;
    }

    async fn post_last(&self) {
        self.record_demands();
        self.totals.lock().hurry(boot_time());
        let is_reachable = |place: usize| self.peers[place].is_reachable();
        let mut looks = interval(LAST_LOOKS);
        loop {
            looks.tick().await;
            if !self.post_due().await && self.totals.lock().is_known(is_reachable, boot_time()) {
                return;
            }
        }
    }

    /// Reads the counters that are due, and posts what was counted; false if there are none.
    pub(super) async fn post_due(&self) -> bool {
        let is_reachable = |place: usize| self.peers[place].is_reachable();
        let due = self.totals.lock().due(is_reachable, boot_time());
        let is_any = !due.is_empty();
        let posts = stream::iter(due.into_iter().map(|key| self.post(key)));
        posts.for_each_concurrent(TOGETHER, |post| post).await;
        is_any
    }

    /// Reads a counter, and posts what this region has counted of it.
    pub(super) async fn post(&self, key: CounterKey) {
        let Some((counter, terms)) = self.totals.lock().counter(key) else {
            return;
        };
        if self.limit(terms).is_none() {
            self.totals.lock().forget(key);
            return;
        }
        let begun = boot_time();
        let Ok(state) = self.limiter.store().loans(counter, None).await else {
            return;
        };
        let looked = self.totals.lock().looked(key, &state, (begun, boot_time()));
        let Some((own, to)) = looked else {
            return;
        };
        for place in to {
            // If there is no link, it is posted once there is one.
            self.peers[place].post(RegionTotal {
                window: own.window,
                total: own.total,
                ..of_counter(key, terms)
            });
        }
    }

    /// Takes in a total of the region at `place`, and answers with that of this one; by [`Self::answer_until`], or refuses it.
    pub(crate) async fn told(
        &self,
        place: usize,
        message: RegionTotal,
        until: Instant,
    ) -> RegionTotal {
        let key = key_of(&message);
        let said = WindowTotal {
            window: message.window,
            total: message.total,
        };
        let kept = self.keep(place, (key, message.terms), said, until).await;
        self.peers[place].told(kept.is_ok());
        let (own, refused) = match kept {
            Ok(own) => (own, Refusal::Unspecified),
            Err((own, refused)) => (own, refused),
        };
        match refused {
            Refusal::Terms => self.peers[place].disagreed(message.terms),
            Refusal::Apart => self.peers[place].is_apart(message.terms),
            Refusal::Unspecified | Refusal::Old | Refusal::Store => {}
        }
        RegionTotal {
            window: own.window,
            total: own.total,
            told_window: message.window,
            told_total: message.total,
            refused: refused.into(),
            ..of_counter(key, message.terms)
        }
    }

    /// Takes in the answers of the region at `place` to totals of this one.
    pub async fn told_back(&self, place: usize, totals: Vec<RegionTotal>) {
        let until = Self::answer_until();
        let totals = stream::iter(totals);
        totals
            .for_each_concurrent(TOGETHER, |total| self.take_back(place, total, until))
            .await;
    }

    async fn take_back(&self, place: usize, message: RegionTotal, until: Instant) {
        let key = key_of(&message);
        let is_posted = self.totals.lock().counter(key);
        if is_posted.is_none_or(|(_, terms)| terms != message.terms) {
            // Nothing was asked, or under other rules.
            return;
        }
        match message.refused() {
            Refusal::Unspecified => {
                let known = WindowTotal {
                    window: message.told_window,
                    total: message.told_total,
                };
                self.totals.lock().known(key, place, known);
                self.peers[place].agreed(message.terms);
            }
            Refusal::Terms => self.peers[place].disagreed(message.terms),
            Refusal::Apart => self.peers[place].is_apart(message.terms),
            Refusal::Old | Refusal::Store => {}
        }
        let said = WindowTotal {
            window: message.window,
            total: message.total,
        };
        let is_news = self.totals.lock().is_news(key, place, said);
        if !is_news {
            self.totals.lock().said(key, place, said, boot_time());
        } else if said.total > 0 {
            // One that is not kept now stays news.
            let _ = self.keep(place, (key, message.terms), said, until).await;
        }
    }

    /// Keeps what the region at `place` has counted. Returns what this region has counted, and why it was not kept.
    async fn keep(
        &self,
        place: usize,
        (key, terms): (CounterKey, u64),
        said: WindowTotal,
        until: Instant,
    ) -> Result<WindowTotal, (WindowTotal, Refusal)> {
        let nothing = WindowTotal::default();
        let limit = self.limit(terms).filter(|limit| limit.counted.is_some());
        // No region of these terms has counted more than the limit.
        let limit = limit.filter(|limit| said.total <= limit.whole.quota);
        let Some(limit) = limit else {
            return Err((nothing, Refusal::Terms));
        };
        let post = RegionPost {
            region: self.regions.all()[place].id(),
            window: said.window,
            total: said.total,
        };
        // Nothing is written of a region that has counted nothing.
        if said.total > 0 && !self.taken.lock().has_room(place, key, boot_time()) {
            return Err((nothing, Refusal::Store));
        }
        if Instant::now() >= until {
            // The store is not asked for nobody.
            return Err((nothing, Refusal::Store));
        }
        let kept = self.limiter.store().keep_total(limit.counter(key), post);
        let Ok(Ok(state)) = timeout_at(until, kept).await else {
            return Err((nothing, Refusal::Store));
        };
        let own = WindowTotal {
            window: state.window,
            total: state.count.min(limit.whole.quota),
        };
        match state.is_written {
            true => {
                let now = boot_time();
                self.totals.lock().said(key, place, said, now);
                let mut ends_at = later(now, state.left);
                if said.window > state.window {
                    ends_at = later(ends_at, limit.owns.window());
                }
                self.taken.lock().took(place, key, ends_at);
                Ok(own)
            }
            false if said.window < state.window => Err((own, Refusal::Old)),
            false => Err((own, Refusal::Apart)),
        }
    }

    /// Says in words how much regions have counted of `counter`.
    pub(super) fn counts_in_words(
        &self,
        counter: LoanCounter,
        state: &LoanState,
    ) -> Option<String> {
        let sums = CountedSums::decode(&state.loans)?;
        let now = boot_time();
        let heard = self.totals.lock().heard(counter.key, state.window);
        let counted = counter.counted?;
        let shares = self.regions.shares(counter.whole.quota);
        let others = self
            .others()
            .filter(|(place, _)| !self.regions.all()[*place].is_retired);
        let others = others.map(|(place, peer)| {
            let is_silent = self.heard.is_silent(place, &counted, now);
            Counts {
                name: peer.name(),
                total: sums.posted(self.regions.all()[place].id(), state.window),
                heard: heard.get(place).copied().flatten(),
                share: is_silent.then(|| shares[place]),
                has_link: peer.is_reachable(),
            }
        });
        let others: Vec<_> = others.collect();
        let own = (&*self.regions.own().name, state.count);
        let told = others.iter().map(|it| it.total).sum();
        let gone = sums.sum(state.window).saturating_sub(told);
        let of = (counter.whole.quota, gone);
        Some(counted_sentence(own, of, &others, now))
    }
}

const fn key_of(message: &RegionTotal) -> CounterKey {
    CounterKey {
        subject: message.subject,
        identity: message.identity,
    }
}

fn of_counter(key: CounterKey, terms: u64) -> RegionTotal {
    RegionTotal {
        subject: key.subject,
        identity: key.identity,
        terms,
        ..RegionTotal::default()
    }
}
