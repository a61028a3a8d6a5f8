//! Several checks at once, of one message: all are asked before any is waited for.

use std::time::Instant;

use ratekeeper_limiter::Ruling;
use ratekeeper_proto::ratekeeper::v1;
use ratekeeper_store::Answer;
use tonic::Status;

use super::check_count;
use super::question::{Place, Question};
use super::service::{Service, asked, respond};
use crate::store::ServedStore;

impl<S: ServedStore> Service<S> {
    /// Decides `checks`, each by itself, in order; none if one of them makes no sense.
    pub(super) async fn decide(
        &self,
        checks: &[v1::CheckRequest],
    ) -> Result<Vec<v1::CheckResponse>, Status> {
        check_count(checks.len())?;
        for (number, check) in checks.iter().enumerate() {
            let place = Place::Check(number);
            let question = Question::new(place, &check.domain, &check.descriptors)?;
            if question.has_override() {
                self.override_admitted.clone()?;
            }
        }
        self.is_loaded()?;
        let start = Instant::now();
        let now = self.app.limiter.clock().now();
        let mut results = Vec::with_capacity(checks.len());
        let mut pending = Vec::new();
        for (number, check) in checks.iter().enumerate() {
            let question = asked(check)?;
            let views = question.views(1);
            let asking = question.check(&views);
            let respond = |ruling: &Ruling<'_>| respond(ruling, check, now);
            results.push(match self.app.limiter.ask(&asking, now, respond) {
                Answer::Decided(response) => response,
                Answer::Pending(later) => {
                    pending.push((number, later));
                    v1::CheckResponse::default()
                }
            });
        }
        for (number, later) in pending {
            let respond = |ruling: &Ruling<'_>| respond(ruling, &checks[number], now);
            results[number] = self.app.limiter.finish(later, respond).await;
        }
        self.app.durations.add(start.elapsed());
        Ok(results)
    }
}
