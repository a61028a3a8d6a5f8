//! The limiter of limits as values.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::Micros;
use ratekeeper_store::HashKey;

use crate::clock::Clock;
use crate::counters::{Counters, Question};
use crate::lines::Lines;
use crate::memory::name;
use crate::{Checked, Error, InMemory, Key, Limit, RateLimiterBuilder, WaitError};

/// The longest time between two questions of one who waits for what others may change: another process gives something
/// back, Redis answers again, memory gets free.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Limits each key by itself. Clones share their counters.
///
/// ```
/// use ratekeeper::{Limit, RateLimiter};
///
/// let limiter = RateLimiter::keyed(Limit::per_minute(5).burst(10))?;
/// let answer = limiter.check("ada");
/// assert!(answer.allowed);
/// assert_eq!(answer.remaining, 9);
/// # Ok::<(), ratekeeper::Error>(())
/// ```
///
/// Several limits hold together: a request passes if it fits all of them, and is charged to all or none.
/// ```
/// use ratekeeper::{Limit, RateLimiter};
///
/// let limiter = RateLimiter::keyed([Limit::per_second(2), Limit::per_day(1_000)])?;
/// limiter.check_n("ada", 2);
/// let denied = limiter.check("ada");
/// assert_eq!((denied.allowed, denied.index), (false, 0));
/// assert_eq!(limiter.limits()[1].hits(), 1_000);
/// # Ok::<(), ratekeeper::Error>(())
/// ```
#[derive(Debug)]
pub struct RateLimiter<C = InMemory> {
    pub(crate) shared: Arc<Shared<C>>,
}

#[derive(Debug)]
pub(crate) struct Shared<C> {
    pub(crate) limits: Box<[Limit]>,
    pub(crate) counters: C,
    pub(crate) clock: Clock,
    pub(crate) lines: Lines,
    pub(crate) wait_max: Option<Duration>,
    /// Names the lines.
    pub(crate) hash_key: HashKey,
}

impl<C> Clone for RateLimiter<C> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl RateLimiter {
    /// A limiter that gives each key the same `limits`, one or several, with counters in memory.
    ///
    /// ```
    /// use ratekeeper::{Limit, RateLimiter};
    ///
    /// let limiter = RateLimiter::keyed(Limit::per_second(1))?;
    /// assert!(limiter.check("ada").allowed);
    /// assert!(limiter.check("bob").allowed);
    /// assert!(!limiter.check("ada").allowed);
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Limit`] if a limit is refused, [`Error::Repeated`] if two cannot be told apart, [`Error::NoLimits`] if
    /// there is none.
    pub fn keyed(limits: impl IntoIterator<Item = Limit>) -> Result<Self, Error> {
        Self::builder(limits).build()
    }

    /// A limiter without keys: everything counts together.
    ///
    /// ```
    /// use ratekeeper::{Limit, RateLimiter};
    ///
    /// let limiter = RateLimiter::unkeyed(Limit::per_second(1))?;
    /// assert!(limiter.check().allowed);
    /// assert!(!limiter.check().allowed);
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`RateLimiter::keyed`].
    pub fn unkeyed(limits: impl IntoIterator<Item = Limit>) -> Result<UnkeyedLimiter, Error> {
        Ok(Self::keyed(limits)?.without_keys())
    }

    /// Begins a limiter with more settings: a clock for tests, bounds of waiting, Redis.
    ///
    /// ```
    /// use ratekeeper::{Limit, RateLimiter};
    /// use std::time::Duration;
    ///
    /// let limiter = RateLimiter::builder(Limit::per_second(5))
    ///     .wait_max(Duration::from_secs(2))
    ///     .build()?;
    /// assert!(limiter.check("ada").allowed);
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    pub fn builder(limits: impl IntoIterator<Item = Limit>) -> RateLimiterBuilder {
        RateLimiterBuilder::new(limits)
    }

    /// Takes one hit of `key`, if it fits.
    ///
    /// ```
    /// use ratekeeper::{Limit, RateLimiter};
    ///
    /// let limiter = RateLimiter::keyed(Limit::per_minute(5))?;
    /// if !limiter.check("ada").allowed {
    ///     println!("not so fast, ada");
    /// }
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    pub fn check(&self, key: impl Key) -> Checked {
        self.check_n(key, 1)
    }

    /// Takes `hits` of `key`, if all of them fit. 0 hits always fit, unless more than the limit was taken.
    ///
    /// ```
    /// use ratekeeper::{Limit, RateLimiter};
    ///
    /// let limiter = RateLimiter::keyed(Limit::per_minute(5))?;
    /// assert!(limiter.check_n("ada", 4).allowed);
    /// assert!(!limiter.check_n("ada", 4).allowed);
    /// assert!(limiter.check("ada").allowed, "a denied request takes nothing");
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    pub fn check_n(&self, key: impl Key, hits: u64) -> Checked {
        self.decide(&key, Question::Take(hits))
    }

    /// Tells if one hit of `key` would pass, and what is left. Takes nothing.
    ///
    /// ```
    /// use ratekeeper::{Limit, RateLimiter};
    ///
    /// let limiter = RateLimiter::keyed(Limit::per_minute(1))?;
    /// assert_eq!(limiter.peek("ada").remaining, 1);
    /// assert!(limiter.check("ada").allowed);
    /// assert!(!limiter.peek("ada").allowed);
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    #[must_use]
    pub fn peek(&self, key: impl Key) -> Checked {
        self.decide(&key, Question::Look)
    }

    /// Gives `hits` of `key` back: windows never hold less than nothing, buckets never more than full.
    ///
    /// ```
    /// use ratekeeper::{Limit, RateLimiter};
    ///
    /// let limiter = RateLimiter::keyed(Limit::per_minute(5))?;
    /// limiter.check_n("ada", 5);
    /// assert_eq!(limiter.refund("ada", 2).remaining, 2);
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    pub fn refund(&self, key: impl Key, hits: u64) -> Checked {
        key.with_text(|key| {
            let answer = self.shared.counters.decide(key, Question::GiveBack(hits));
            self.shared.lines.nudge(name(self.shared.hash_key, key));
            answer
        })
    }

    fn decide(&self, key: &impl Key, question: Question) -> Checked {
        key.with_text(|key| self.shared.counters.decide(key, question))
    }
}

impl<C: Counters> RateLimiter<C> {
    /// Waits until one hit of `key` fits, and takes it.
    ///
    /// Requests for the same key wait in line, the first goes first. [`check`](RateLimiter::check) does not
    /// stand in that line. At most [`waiting_max`](RateLimiterBuilder::waiting_max) requests wait, and each at most
    /// [`wait_max`](RateLimiterBuilder::wait_max). Dropping the future leaves the line; in memory it then has taken
    /// nothing. It works in any async runtime: a thread of its own, started by the first wait, wakes it. With counters in
    /// Redis the first of a line asks again each second, since another process may give something back.
    ///
    /// ```
    /// use ratekeeper::{Limit, RateLimiter, WaitError};
    ///
    /// async fn call(limiter: &RateLimiter) -> Result<(), WaitError> {
    ///     limiter.until_allowed("vendor").await?;
    ///     // Call the vendor.
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`WaitError`]: nothing was taken.
    pub fn until_allowed<K: Key>(
        &self,
        key: K,
    ) -> impl Future<Output = Result<Checked, WaitError>> + Send + use<'_, C, K> {
        self.until_allowed_n(key, 1)
    }

    /// Waits until `hits` of `key` fit, and takes them, as [`until_allowed`](Self::until_allowed) does.
    ///
    /// ```
    /// use ratekeeper::{Limit, RateLimiter, WaitError};
    ///
    /// async fn send(limiter: &RateLimiter, lines: &[String]) -> Result<(), WaitError> {
    ///     limiter.until_allowed_n("vendor", lines.len() as u64).await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`WaitError::Never`] at once if they exceed the limit; [`WaitError`] for the others. Nothing was taken.
    pub fn until_allowed_n<K: Key>(
        &self,
        key: K,
        hits: u64,
    ) -> impl Future<Output = Result<Checked, WaitError>> + Send + use<'_, C, K> {
        let key: Box<str> = key.with_text(|key| key.into());
        async move { self.shared.wait(&key, hits).await }
    }

    /// The same limiter for everything together: as [`RateLimiter::unkeyed`], for any builder and any counters.
    ///
    /// ```
    /// use ratekeeper::{Limit, RateLimiter};
    ///
    /// let limiter = RateLimiter::builder(Limit::per_second(1)).memory_limit(1 << 20).build()?.without_keys();
    /// assert!(limiter.check().allowed);
    /// assert!(!limiter.check().allowed);
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    #[must_use]
    pub const fn without_keys(self) -> UnkeyedLimiter<C> {
        UnkeyedLimiter(self)
    }

    /// The limits, in the order of [`Checked::index`].
    ///
    /// ```
    /// use ratekeeper::{Limit, RateLimiter};
    ///
    /// let limiter = RateLimiter::keyed(Limit::per_minute(5))?;
    /// assert_eq!(limiter.limits(), [Limit::per_minute(5)]);
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    #[must_use]
    pub fn limits(&self) -> &[Limit] {
        &self.shared.limits
    }
}

#[cfg(feature = "layer")]
impl<C: Counters> RateLimiter<C> {
    /// Asks for `hits` of a key by its text.
    pub(crate) fn ask_text(&self, key: &str, hits: u64) -> C::Answer {
        self.shared.counters.ask(key, Question::Take(hits))
    }
}

impl<C: Counters> Shared<C> {
    async fn wait(&self, key: &str, hits: u64) -> Result<Checked, WaitError> {
        let start = self.clock.now();
        let line = name(self.hash_key, key);
        let left = || {
            let most = Micros::from(self.wait_max?);
            let elapsed = self.clock.now().since(start);
            Some(Micros::new(most.get().saturating_sub(elapsed.get())))
        };
        let mut place = None;
        if self.lines.has(line) {
            place = Some(self.lines.join(line)?);
        }
        loop {
            if let Some(place) = &place {
                let deadline = left().map(|left| self.clock.sleep(left));
                if !place.turn(deadline).await? {
                    let wait = self.wait_max.unwrap_or_default();
                    return Err(WaitError::TooLong { wait });
                }
            }
            let answer = self.counters.ask(key, Question::Take(hits)).await;
            if answer.allowed {
                return Ok(answer);
            }
            let limit = answer.limit;
            let never_fits = !answer.degraded || hits > limit;
            let wait = match answer.retry_after {
                None if never_fits => return Err(WaitError::Never { limit }),
                told => told.unwrap_or(ASK_AGAIN),
            };
            if left().is_some_and(|left| Micros::from(wait) > left) {
                return Err(WaitError::TooLong { wait });
            }
            let place = match &mut place {
                Some(place) => place,
                None => place.insert(self.lines.join(line)?),
            };
            let is_ours = !C::IS_SHARED && !answer.degraded;
            let sleep = if is_ours { wait } else { wait.min(ASK_AGAIN) };
            place.sleep(self.clock.sleep(sleep.into())).await?;
        }
    }
}

/// A limiter without keys, made by [`RateLimiter::unkeyed`] or [`RateLimiter::without_keys`].
///
/// ```
/// use ratekeeper::{Limit, RateLimiter};
///
/// let limiter = RateLimiter::unkeyed(Limit::per_second(5))?;
/// assert_eq!(limiter.check().remaining, 4);
/// # Ok::<(), ratekeeper::Error>(())
/// ```
#[derive(Debug)]
pub struct UnkeyedLimiter<C = InMemory>(pub(crate) RateLimiter<C>);

impl<C> Clone for UnkeyedLimiter<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl UnkeyedLimiter {
    /// Takes one hit, if it fits.
    ///
    /// ```
    /// # let limiter = ratekeeper::RateLimiter::unkeyed(ratekeeper::Limit::per_second(5))?;
    /// assert!(limiter.check().allowed);
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    pub fn check(&self) -> Checked {
        self.0.check("")
    }

    /// Takes `hits`, if all of them fit.
    ///
    /// ```
    /// # let limiter = ratekeeper::RateLimiter::unkeyed(ratekeeper::Limit::per_second(5))?;
    /// assert!(limiter.check_n(5).allowed);
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    pub fn check_n(&self, hits: u64) -> Checked {
        self.0.check_n("", hits)
    }

    /// Tells if one hit would pass, and takes nothing.
    ///
    /// ```
    /// # let limiter = ratekeeper::RateLimiter::unkeyed(ratekeeper::Limit::per_second(5))?;
    /// assert_eq!(limiter.peek().remaining, 5);
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    #[must_use]
    pub fn peek(&self) -> Checked {
        self.0.peek("")
    }

    /// Gives `hits` back.
    ///
    /// ```
    /// # let limiter = ratekeeper::RateLimiter::unkeyed(ratekeeper::Limit::per_second(5))?;
    /// limiter.check_n(5);
    /// assert_eq!(limiter.refund(5).remaining, 5);
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    pub fn refund(&self, hits: u64) -> Checked {
        self.0.refund("", hits)
    }
}

impl<C: Counters> UnkeyedLimiter<C> {
    /// Waits until one hit fits, and takes it, as [`RateLimiter::until_allowed`] does.
    ///
    /// ```
    /// use ratekeeper::{UnkeyedLimiter, WaitError};
    ///
    /// async fn tick(limiter: &UnkeyedLimiter) -> Result<(), WaitError> {
    ///     limiter.until_allowed().await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`WaitError`]: nothing was taken.
    pub async fn until_allowed(&self) -> Result<Checked, WaitError> {
        self.0.until_allowed("").await
    }

    /// Waits until `hits` fit, and takes them.
    ///
    /// ```
    /// use ratekeeper::{UnkeyedLimiter, WaitError};
    ///
    /// async fn upload(limiter: &UnkeyedLimiter, bytes: &[u8]) -> Result<(), WaitError> {
    ///     limiter.until_allowed_n(bytes.len() as u64).await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`WaitError`]: nothing was taken.
    pub async fn until_allowed_n(&self, hits: u64) -> Result<Checked, WaitError> {
        self.0.until_allowed_n("", hits).await
    }
}
