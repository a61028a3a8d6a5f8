//! the keys with full denial logging, each for a bounded time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;
use utoipa::ToSchema;

/// The most keys that are followed at a time.
pub(crate) const FOLLOWED_MAX: usize = 8;

/// The longest time for which a key is followed.
pub(crate) const FOLLOWED_TIME_MAX: Duration = Duration::from_secs(3_600);

/// The most lines that a followed key gets in one second: one tenant must not fill a disk.
const LINES_PER_SECOND: u64 = 1_000;

/// A key that is followed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[schema(as = FollowedEntry)]
pub(crate) struct FollowedKey {
    /// The beginning of a descriptor, as top keys are shown: `customer:acme`.
    pub(crate) key: Box<str>,
    /// Seconds left.
    pub(crate) seconds_left: u64,
    /// Lines logged for it.
    pub(crate) logged: u64,
    /// Denials that were not logged, because there were more than 1,000 in a second.
    pub(crate) left_out: u64,
}

/// As many keys are followed as may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{FOLLOWED_MAX} keys are followed already; end one of them first")]
pub(crate) struct TooMany;

/// The keys that are followed now.
#[derive(Debug)]
pub(crate) struct FollowedKeys {
    origin: Instant,
    /// Milliseconds after `origin` until which any key may be followed: all that a denial reads while none is.
    until: AtomicU64,
    keys: Mutex<Vec<Following>>,
}

#[derive(Debug)]
struct Following {
    key: Box<str>,
    until: Instant,
    /// The second that `count` is about, after the origin.
    second: u64,
    count: u64,
    logged: u64,
    left_out: u64,
}

impl Default for FollowedKeys {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            until: AtomicU64::new(0),
            keys: Mutex::default(),
        }
    }
}

impl FollowedKeys {
    /// Follows `key` for `time`, at most [`FOLLOWED_TIME_MAX`]; a key that is followed already gets the new time.
    ///
    /// # Errors
    /// Too many are followed.
    pub(crate) fn follow(&self, key: &str, time: Duration) -> Result<(), TooMany> {
        let until = Instant::now() + time.min(FOLLOWED_TIME_MAX);
        let mut keys = self.keys.lock();
        keys.retain(|it| it.until > Instant::now());
        let is_full = keys.len() >= FOLLOWED_MAX;
        match keys.iter_mut().find(|it| *it.key == *key) {
            Some(known) => known.until = until,
            None if is_full => return Err(TooMany),
            None => keys.push(Following {
                key: key.into(),
                until,
                second: 0,
                count: 0,
                logged: 0,
                left_out: 0,
            }),
        }
        self.renew(&keys);
        Ok(())
    }

    /// Ends following `key`; returns false if it was not followed.
    pub(crate) fn end(&self, key: &str) -> bool {
        let mut keys = self.keys.lock();
        let before = keys.len();
        keys.retain(|it| *it.key != *key);
        self.renew(&keys);
        keys.len() < before
    }

    /// The keys that are followed now.
    pub(crate) fn list(&self) -> Vec<FollowedKey> {
        let now = Instant::now();
        let keys = self.keys.lock();
        let live = keys.iter().filter(|it| it.until > now);
        live.map(|it| FollowedKey {
            key: it.key.clone(),
            seconds_left: (it.until - now).as_secs(),
            logged: it.logged,
            left_out: it.left_out,
        })
        .collect()
    }

    /// Returns true if any key may be followed now.
    pub(crate) fn are_any(&self) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        until != 0 && millis(self.origin.elapsed()) < until
    }

    /// Returns true if a denial of the descriptor `scope` is to be logged because its key is followed.
    pub(crate) fn takes(&self, scope: &str) -> bool {
        let now = Instant::now();
        let second = self.origin.elapsed().as_secs();
        let mut keys = self.keys.lock();
        let found = keys
            .iter_mut()
            .find(|it| it.until > now && begins(scope, &it.key));
        let Some(following) = found else {
            return false;
        };
        if following.second != second {
            (following.second, following.count) = (second, 0);
        }
        following.count += 1;
        let is_logged = following.count <= LINES_PER_SECOND;
        match is_logged {
            true => following.logged += 1,
            false => following.left_out += 1,
        }
        is_logged
    }

    fn renew(&self, keys: &[Following]) {
        let last = keys.iter().map(|it| it.until).max();
        let until = last.map_or(0, |until| {
            millis(until.saturating_duration_since(self.origin))
        });
        self.until.store(until, Ordering::Relaxed);
    }
}

/// Returns true if `key` is the whole of `scope`, or its first entries.
pub(crate) fn begins(scope: &str, key: &str) -> bool {
    let rest = scope.strip_prefix(key);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_key_is_followed_with_all_that_lies_below_it() {
        let keys = FollowedKeys::default();
        assert!(!keys.are_any());
        keys.follow("customer:acme", MINUTE).expect("there is room");
        assert!(keys.are_any());
        assert!(keys.takes("customer:acme"));
        assert!(keys.takes("customer:acme:endpoint:POST /orders"));
        for other in ["customer:acme2", "customer:beta", "customer", ""] {
            assert!(!keys.takes(other), "{other}");
        }
        assert_eq!(keys.list()[0].logged, 2);
        assert!(keys.end("customer:acme"));
        assert!(!keys.end("customer:acme"));
        assert!(!keys.are_any());
    }

    #[test]
    fn the_number_of_keys_and_their_time_are_bounded() {
        let keys = FollowedKeys::default();
        for number in 0..FOLLOWED_MAX {
            let key = format!("customer:{number}");
            keys.follow(&key, Duration::MAX).expect("there is room");
        }
        assert_eq!(keys.follow("customer:more", MINUTE), Err(TooMany));
        // One that is followed already only gets another time.
        assert_eq!(keys.follow("customer:0", MINUTE), Ok(()));
        let most = FOLLOWED_TIME_MAX.as_secs();
        assert!(keys.list().iter().all(|it| it.seconds_left <= most));
        keys.end("customer:1");
        keys.follow("customer:2", Duration::ZERO).expect("known");
        assert_eq!(
            keys.list().len(),
            FOLLOWED_MAX - 2,
            "the time of one is over"
        );
        assert_eq!(keys.follow("customer:more", MINUTE), Ok(()));
    }

    #[test]
    fn a_flood_of_one_key_is_a_bounded_number_of_lines() {
        let keys = FollowedKeys::default();
        keys.follow("customer:acme", MINUTE).expect("there is room");
        let second = keys.origin.elapsed().as_secs();
        let taken = (0..3_000).filter(|_| keys.takes("customer:acme")).count();
        // Unless the second turned meanwhile.
        if keys.origin.elapsed().as_secs() == second {
            assert_eq!(taken, 1_000);
            assert_eq!(keys.list()[0].left_out, 2_000);
        }
    }
}
