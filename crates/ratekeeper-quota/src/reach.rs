//! The question if somebody listens at the address of the database, which one caller at a time asks.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::QuotaError;

/// The answers to the question. Each costs a connection of its own, beside those of the pool.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// The time of the last good answer; held by the one who asks.
    reached: Mutex<Option<Instant>>,
    /// True if nobody listened the last time that it was asked.
    is_refused: AtomicBool,
}

impl Reach {
    pub(crate) fn is_refused(&self) -> bool {
        // Relaxed: it publishes nothing else.
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Asks, unless somebody else has had a good answer meanwhile.
    ///
    /// # Errors
    /// That of `asked`.
    pub(crate) async fn check(
        &self,
        asked: impl Future<Output = Result<(), QuotaError>>,
    ) -> Result<(), QuotaError> {
        let begun = Instant::now();
        let mut reached = self.reached.lock().await;
        if reached.is_some_and(|at| at >= begun) {
            return Ok(());
        }
        let answer = asked.await;
        match &answer {
            Ok(()) => {
                *reached = Some(Instant::now());
                self.is_refused.store(false, Ordering::Relaxed);
            }
            Err(error) if error.is_refusal() => self.is_refused.store(true, Ordering::Relaxed),
            // Somebody may listen who is slow.
            Err(_) => {}
        }
        answer
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
        sleep(Duration::from_millis(1)).await;
        assert!(ask(|| Err(refused())).await.is_err());
        assert!(reach.is_refused());
        let slow = || Err(sqlx::Error::PoolTimedOut.into());
        assert!(ask(slow).await.is_err());
        assert!(reach.is_refused(), "that is not known again");
        assert!(ask(|| Ok(())).await.is_ok());
        assert!(!reach.is_refused());
        assert_eq!(asked.get(), 4);
    }
}
