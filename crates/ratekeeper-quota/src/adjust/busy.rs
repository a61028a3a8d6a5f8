//! The tenants that may need more than their plan's limit: those with enough calls in its period.

use std::collections::BTreeSet;

use super::{AdjustRound, PAGE, Raised, demand, keys};
use crate::rows::stored;
use crate::store::within;
use crate::{QuotaError, QuotaStore, UsageFilter};

/// The period from which on calls are looked at by hour, in minutes.
const LONG: u64 = 24 * 60;

/// The tenants of domain $3 after $6 with $7 calls or more by the rules $4 and $5 after minute $1 up to $2, at most $8. Of the
/// domain itself SQLite would think that it tells more than the time, and read all minutes that are kept.
const BUSY: &str = "SELECT api_key FROM quota_usage WHERE minute > $1 AND minute <= $2 AND domain || '' = $3 \
                    AND (rule = $4 OR rule = $5) AND api_key > $6 GROUP BY api_key \
                    HAVING SUM(allowed) >= $7 ORDER BY api_key LIMIT $8";

impl QuotaStore {
    /// The hashes of tenants whose calls are a reason to raise even the plan's own limit, and maybe of some others.
    pub(super) async fn busy(
        &self,
        raised: &Raised<'_>,
        round: AdjustRound,
    ) -> Result<BTreeSet<String>, QuotaError> {
        let counts_hits = raised
            .rule
            .limited()
            .is_some_and(|limit| limit.is_post_paid());
        match raised.period >= LONG {
            true if round != AdjustRound::All => Ok(BTreeSet::new()),
            true if !counts_hits => self.busy_by_hour(raised).await,
            _ => self.busy_by_minute(raised).await,
        }
    }

    /// By the calls of the rules that count, of which there are many rows: one for each minute.
    async fn busy_by_minute(&self, raised: &Raised<'_>) -> Result<BTreeSet<String>, QuotaError> {
        let least = raised.policy.threshold(raised.capacity, 0);
        let current = demand::minute(raised.times.recorded);
        let mut found = BTreeSet::new();
        // The period that ends with the current minute, which is not over yet, and the one before.
        for last in [current, current.saturating_sub(1)] {
            let mut after = String::new();
            loop {
                let page = within(async {
                    let rows = sqlx::query(BUSY)
                        .bind(stored(last) - stored(raised.period))
                        .bind(stored(last))
                        .bind(raised.domain.name().to_owned())
                        .bind(raised.counted[0].clone())
                        .bind(raised.counted[1].clone())
                        .bind(after.clone())
                        .bind(stored(least))
                        .bind(stored(PAGE as u64))
                        .fetch_all(&self.pool)
                        .await?;
                    keys(&rows, "api_key")
                })
                .await?;
                let is_last = page.len() < PAGE;
                after = page.last().cloned().unwrap_or_default();
                found.extend(page);
                if is_last {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// By all calls of each tenant in the hours of the period: no rule has more.
    async fn busy_by_hour(&self, raised: &Raised<'_>) -> Result<BTreeSet<String>, QuotaError> {
        let least = raised.policy.threshold(raised.capacity, 0);
        let current = demand::minute(raised.times.recorded);
        let first = current.saturating_sub(raised.period);
        let (hours, domain) = (first / 60..current / 60 + 1, raised.domain.name());
        let all = UsageFilter::default();
        let mut found = BTreeSet::new();
        let mut after = (domain.to_owned(), String::new());
        loop {
            let callers = self.callers(&all, &after, usize::MAX).await?;
            let Some(last) = callers.into_iter().map(|caller| caller.place).next_back() else {
                return Ok(found);
            };
            let sums = self.sums(&all, hours.clone(), &after, &last).await?;
            let busy = sums
                .into_iter()
                .filter(|(place, (allowed, _))| place.0 == domain && *allowed >= least);
            found.extend(busy.map(|((_, hash), _)| hash));
            if last.0 != domain {
                return Ok(found);
            }
            after = last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DatabaseKind;
    use crate::query_plans::Filled;
    use crate::rows::Cell;

    async fn plan(kind: DatabaseKind) -> String {
        let filled = Filled::new(kind).await;
        let text = |text: &str| Cell::from(text.to_owned());
        let mut values: Vec<_> = [90, 91].map(Cell::number).into();
        values.extend(["d", "d.customer", "d.own", ""].map(text));
        values.extend([10, 10].map(Cell::number));
        filled.plan(BUSY, values).await
    }

    #[tokio::test]
    async fn sqlite_reads_the_minutes_of_the_period_alone() {
        let plan = plan(DatabaseKind::Sqlite).await;
        assert!(plan.contains("(minute>? AND minute<?)"), "{plan}");
    }

    #[tokio::test]
    async fn postgres_reads_the_minutes_of_the_period_alone() {
        let plan = plan(DatabaseKind::Postgres).await;
        assert!(plan.contains("quota_usage_pkey"), "{plan}");
    }
}
