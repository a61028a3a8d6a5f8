//! Limits of which regions lend each other parts: what this node asks for, what it lends, and what it takes in.
//!
//! No answer waits for the store for longer than its link may be silent. A change whose answer is lost is no fault: the next
//! ask says what is held; see [`ratekeeper_core::region::loans`].

use futures_util::{StreamExt, stream};
use ratekeeper_core::region::loans::{LoanTerms, PeerLook, RefusedAsk, WantedLoan};
use ratekeeper_core::{Limit, Micros};
use ratekeeper_proto::ratekeeper::v1::loan_answer::Refusal;
use ratekeeper_proto::ratekeeper::v1::{LoanAnswer, LoanAsk};
use ratekeeper_store::{CounterKey, LoanCounter, boot_time};
use tokio::time::{Instant, timeout_at};

use super::change::{Changed, NUMBER_MAX, answer_of, ask_of, asked, change, heard};
use super::counters::{Found, longest};
use super::{RegionLoans, TOGETHER, later};

impl RegionLoans {
    /// Reads a counter, and asks others for what it lacks.
    pub(super) async fn look_at(&self, key: CounterKey) {
        let Some((counter, terms)) = self.counters.lock().counter(key) else {
            return;
        };
        let Some(limit) = self.limit(terms) else {
            self.counters.lock().forget(key);
            return;
        };
        let Ok(state) = self.limiter.store().loans(counter, None).await else {
            return;
        };
        let lending = self.lending(&counter);
        let Some(loans) = lending.read(&state) else {
            self.counters.lock().unread(boot_time());
            return;
        };
        let standing = loans.standing(&state, &lending);
        let lent = loans.lent_for_a_time(&lending);
        let regions = self.seen(limit.whole.quota);
        let now = boot_time();
        let (over, wanted) = {
            let mut counters = self.counters.lock();
            let over = counters.over(key, lent, &lending, now);
            let found = Found {
                lending: &lending,
                state: &state,
                standing: &standing,
            };
            (over, counters.wanted(key, &found, &regions, now))
        };
        for loan in over {
            let made = change(self, &lending, |loans, _| {
                loans.regain(&lending, loan).then_some(Changed::of(()))
            });
            // If it fails, the next look tries it again.
            let _ = made.await;
        }
        for wanted in wanted {
            self.ask((counter, terms), wanted).await;
        }
    }

    /// The regions as this node sees them, of a limit of so many hits.
    fn seen(&self, quota: u64) -> Vec<PeerLook> {
        let own = self.regions.own_place();
        let shares = self.regions.shares(quota).into_iter().enumerate();
        let seen = shares.map(|(place, owns)| PeerLook {
            owns,
            is_reachable: place != own && self.peers[place].is_reachable(),
        });
        seen.collect()
    }

    /// Makes an ask, and sends it.
    async fn ask(&self, (counter, terms): (LoanCounter, u64), wanted: WantedLoan) {
        let sent = boot_time();
        let lending = self.lending(&counter);
        let made = change(self, &lending, |loans, state| {
            let here = (&lending, state);
            if wanted.release > 0 {
                loans.release(here, wanted.peer, wanted.release);
            }
            let wants = (wanted.now, wanted.next);
            Some(Changed::of(loans.ask(here, wanted.peer, wants)))
        });
        let ask = made.await.ok().flatten();
        let asked = ask.filter(|ask| {
            let message = ask_of(counter.key, terms, ask, wanted.recall);
            self.peers[wanted.peer].send(message)
        });
        let mut counters = self.counters.lock();
        match asked {
            Some(ask) => counters.sent(counter.key, wanted.peer, ask, sent),
            None => counters.unsent(counter.key, &wanted, boot_time()),
        }
    }

    /// Answers an ask of `peer`, or refuses it once it is `until`. A change that is made all the same is as if its answer had been
    /// lost on its way: the next ask says that none of it is held.
    pub(crate) async fn lend(&self, peer: usize, message: LoanAsk, until: Instant) -> LoanAnswer {
        let answer = match Instant::now() < until {
            true => timeout_at(until, self.try_lend(peer, &message)).await.ok(),
            // The store is not asked for nobody.
            false => None,
        };
        let answer = answer.unwrap_or(Err((Refusal::Store, 0)));
        self.peers[peer].asked(answer.is_ok());
        match answer {
            Ok(answer) => answer,
            Err((refusal, latest)) => {
                if refusal == Refusal::Terms {
                    self.peers[peer].disagreed(message.terms);
                }
                LoanAnswer {
                    subject: message.subject,
                    identity: message.identity,
                    number: message.number,
                    refused: refusal.into(),
                    latest,
                    ..LoanAnswer::default()
                }
            }
        }
    }

    async fn try_lend(&self, peer: usize, message: &LoanAsk) -> Result<LoanAnswer, (Refusal, u64)> {
        let limit = self.limit(message.terms);
        let limit = limit.filter(|limit| limit.counted.is_none());
        let limit = limit.ok_or((Refusal::Terms, 0))?;
        let key = CounterKey {
            subject: message.subject,
            identity: message.identity,
        };
        let counter = limit.counter(key);
        let lending = self.lending(&counter);
        if !self.lent_to.lock().has_room(peer, key, boot_time()) {
            return Err((Refusal::Store, 0));
        }
        let ask = asked(message, lending.kind);
        let (mut unwritten, mut holds) = (None, false);
        let made = change(self, &lending, |loans, state| {
            holds = loans.held(peer, state) != (0, 0);
            let needs = self.counters.lock().needs(key, state, &lending);
            match loans.lend((&lending, state), (peer, &ask), needs) {
                // Nothing depends on it, so none of it is kept.
                Ok((made, _)) if state.loans.is_empty() && made.is_nothing() => {
                    unwritten = Some(Ok(made));
                    None
                }
                Ok((made, tokens)) => Some(Changed { made, tokens }),
                Err(why) => {
                    unwritten = Some(Err(why));
                    None
                }
            }
        });
        match made.await {
            Ok(Some(answer)) => {
                let ends_at = later(boot_time(), longest(&lending));
                self.lent_to.lock().took(peer, key, ends_at);
                // Nothing can be given back of what is not held, so no region has this node look after counters for nothing.
                if message.recall > 0 && holds {
                    let mut counters = self.counters.lock();
                    counters.recall((counter, message.terms), peer, message.recall);
                }
                Ok(answer_of(key, &answer))
            }
            Ok(None) => match unwritten {
                Some(Ok(answer)) => Ok(answer_of(key, &answer)),
                Some(Err(RefusedAsk::Old { last })) => Err((Refusal::Old, last)),
                Some(Err(RefusedAsk::Apart)) => Err((Refusal::Apart, 0)),
                Some(Err(RefusedAsk::Shrunk)) | None => Err((Refusal::Store, 0)),
            },
            Err(_) => Err((Refusal::Store, 0)),
        }
    }

    /// Takes in answers of `peer`, as far as the store does so in time: the next asks repeat what was lost.
    pub async fn answered(&self, peer: usize, messages: Vec<LoanAnswer>) {
        let until = Self::answer_until();
        let answers = stream::iter(messages);
        answers
            .for_each_concurrent(TOGETHER, |message| self.take_answer(peer, message, until))
            .await;
    }

    async fn take_answer(&self, peer: usize, message: LoanAnswer, until: Instant) {
        let key = CounterKey {
            subject: message.subject,
            identity: message.identity,
        };
        let now = boot_time();
        let taken = self.counters.lock().take_ask(key, peer, message.number);
        let Some((counter, terms, (ask, sent))) = taken else {
            return;
        };
        let Some(limit) = self.limit(terms) else {
            return;
        };
        let lending = self.lending(&counter);
        let mut is_more = false;
        match message.refused() {
            Refusal::Unspecified => {
                let own = self.regions.shares(limit.whole.quota);
                let answer = heard(&message, &ask, own[peer], &lending);
                let made = change(self, &lending, |loans, state| {
                    let before = loans.held(peer, state);
                    let tokens = loans.accept((&lending, state), (peer, &answer), sent)?;
                    let held = loans.held(peer, state);
                    is_more = held.0 > before.0 || held.1 > before.1;
                    Some(Changed {
                        made: (),
                        tokens: -tokens.cast_signed(),
                    })
                });
                // One that is not taken in time is as if it had been lost.
                let _ = timeout_at(until, made).await;
            }
            Refusal::Old => {
                let latest = message.latest.min(NUMBER_MAX);
                let made = change(self, &lending, |loans, _| {
                    loans.asked_before(peer, latest);
                    Some(Changed::of(()))
                });
                let _ = timeout_at(until, made).await;
            }
            Refusal::Terms => self.peers[peer].disagreed(terms),
            Refusal::Apart => self.peers[peer].is_apart(terms),
            Refusal::Store => {}
        }
        if message.refused() == Refusal::Unspecified {
            self.peers[peer].agreed(terms);
        }
        let spare = message.spare.min(limit.whole.quota);
        let mut counters = self.counters.lock();
        if message.refused() == Refusal::Unspecified {
            counters.told(key, peer, (spare, now));
        }
        counters.heard(key, peer, (spare, is_more), now);
    }

    pub(super) fn terms(&self, limit: &Limit) -> LoanTerms {
        LoanTerms {
            window: limit.window(),
            time: self.regions.loan_time(),
            margin: Micros::new(self.regions.loan_time().get() / 10),
        }
    }
}
