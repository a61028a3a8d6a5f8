//! The question if somebody listens at the address of the database, which one caller at a time asks.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::QuotaError;

/// The answers to the question. Each costs a connection of its own, beside those of the pool.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// The last answer, and when it came; held by the one who asks.
    last: Mutex<Option<(Instant, Answer)>>,
    /// True if nobody listened the last time that it was asked.
    is_refused: AtomicBool,
}

/// An answer that others than the one who asked can have.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Reached,
    Refused,
    Silent,
}

impl Answer {
    fn of(answer: &Result<(), QuotaError>) -> Self {
        match answer {
            Ok(()) => Self::Reached,
            Err(error) if error.is_refusal() => Self::Refused,
            Err(_) => Self::Silent,
        }
    }

    fn result(self) -> Result<(), QuotaError> {
        let error = match self {
            Self::Reached => return Ok(()),
            Self::Refused => sqlx::Error::Io(io::ErrorKind::ConnectionRefused.into()),
            Self::Silent => sqlx::Error::PoolTimedOut,
        };
        Err(error.into())
    }
}

impl Reach {
    pub(crate) fn is_refused(&self) -> bool {
        // Relaxed: it publishes nothing else.
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Asks, unless somebody else has had an answer meanwhile, good or bad: each would wait for all those before, and a server
    /// that is gone takes seconds.
    ///
    /// # Errors
    /// One like that of `asked`: it is a refusal, or none.
    pub(crate) async fn check(
        &self,
        asked: impl Future<Output = Result<(), QuotaError>>,
    ) -> Result<(), QuotaError> {
        let begun = Instant::now();
        let mut last = self.last.lock().await;
        if let Some((at, answer)) = *last
            && at > begun
        {
            return answer.result();
        }
        let result = asked.await;
        let answer = Answer::of(&result);
        match answer {
            Answer::Reached => self.is_refused.store(false, Ordering::Relaxed),
            Answer::Refused => self.is_refused.store(true, Ordering::Relaxed),
            // Somebody may listen who is slow.
            Answer::Silent => {}
        }
        *last = Some((Instant::now(), answer));
        result
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io;
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    fn refused() -> QuotaError {
        sqlx::Error::Io(io::ErrorKind::ConnectionRefused.into()).into()
    }

    /// A burst after a pause, or after an outage, would else open a connection each.
    #[tokio::test(start_paused = true)]
    async fn those_who_wait_share_a_good_answer() {
        let (reach, asked) = (Reach::default(), Cell::new(0));
        let ask = |answer: fn() -> Result<(), QuotaError>| {
            let asked = &asked;
            reach.check(async move {
                asked.set(asked.get() + 1);
                sleep(Duration::from_millis(10)).await;
                answer()
            })
        };
        let together = tokio::join!(ask(|| Ok(())), ask(|| Ok(())), ask(|| Ok(())));
        assert!(matches!(together, (Ok(()), Ok(()), Ok(()))));
        assert_eq!(asked.get(), 1);
        // One that is over is no answer to a later question.
        assert!(ask(|| Err(refused())).await.is_err());
        assert!(reach.is_refused());
        let slow = || Err(sqlx::Error::PoolTimedOut.into());
        assert!(ask(slow).await.is_err());
        assert!(reach.is_refused(), "that is not known again");
        assert!(ask(|| Ok(())).await.is_ok());
        assert!(!reach.is_refused());
        assert_eq!(asked.get(), 4);
    }
    /// Else the last of them would wait for the questions of all before, three seconds each.
    #[tokio::test(start_paused = true)]
    async fn those_who_wait_share_a_bad_answer() {
        let (reach, asked) = (Reach::default(), Cell::new(0));
        let ask = |answer: fn() -> QuotaError| {
            let asked = &asked;
            reach.check(async move {
                asked.set(asked.get() + 1);
                sleep(Duration::from_secs(3)).await;
                Err(answer())
            })
        };
        for (times, answer) in [
            (
                1,
                (|| sqlx::Error::PoolTimedOut.into()) as fn() -> QuotaError,
            ),
            (2, refused),
        ] {
            let begun = Instant::now();
            let (a, b, c) = tokio::join!(ask(answer), ask(answer), ask(answer));
            assert_eq!(begun.elapsed(), Duration::from_secs(3));
            for answered in [a, b, c] {
                let error = answered.expect_err("nobody answers");
                assert_eq!(error.is_refusal(), answer().is_refusal(), "{error}");
            }
            assert_eq!(asked.get(), times);
        }
    }
}
