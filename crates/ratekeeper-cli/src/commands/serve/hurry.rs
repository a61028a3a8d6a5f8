//! A stop that is asked for again is to be a quick one.

use super::stop::Signals;
use ratekeeper_server::DrainDelay;
use std::pin::Pin;
use tracing::info;

/// Tells once there is no time left.
pub(super) struct Hurry {
    asked: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_asked: bool,
}

impl Hurry {
    /// There is none left at the second signal, or at the third if the second one ended the drain `delay`.
    pub(super) fn new(stop: &Signals, delay: DrainDelay) -> Self {
        let (second, third) = (stop.second(), stop.third());
        let asked = async move {
            second.await;
            if delay.end() {
                info!("second signal: the drain delay ends");
                third.await;
            }
        };
        Self {
            asked: Box::pin(asked),
            is_asked: false,
        }
    }

    /// Completes then, and at once from then on.
    pub(super) async fn asked(&mut self) {
        if !self.is_asked {
            self.asked.as_mut().await;
            self.is_asked = true;
        }
    }
}
