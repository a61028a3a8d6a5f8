//! The calls of tenants by hour, added up by day or month for bills.
//!
//! A call is in here once, whatever number of rules it matched. Nodes write absolute numbers, as they do [by
//! minute](crate::UsageRow).

mod sums;

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use ratekeeper_rules::TenantHash;
use serde::{Deserialize, Serialize};
use sqlx::Row;

use crate::bulk::line;
use crate::metering::{none_has_a_zero, read_digits, write_digits};
use crate::record::printable;
use crate::rows::{self, Cell, stored};
use crate::store::within;
use crate::usage::name_of;
use crate::{
    BulkFormat, NotAUsageCursor, QuotaError, QuotaStore, USAGE_PAGE_MAX, UsageFilter, UsagePeriod,
};

use sums::{Caller, TenantPlace};

/// The time after which a page is not gone on with. Clients wait for ten seconds.
const PAGE_MAX: Duration = Duration::from_secs(5);

/// The calls of one tenant in one hour, on one node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CallRow {
    /// The hour, counted from 1970 in UTC.
    pub hour: u64,
    /// The domain.
    pub domain: String,
    /// The tenant; [`None`] for those beyond what one node writes for an hour, together.
    pub tenant: Option<TenantHash>,
    /// The name of the node.
    pub node: String,
    /// The calls that were allowed.
    pub allowed: u64,
    /// The calls that a limit of the tenant denied.
    pub denied: u64,
}

/// The name of a tenant that called.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CallerRow {
    /// The domain.
    pub domain: String,
    /// The tenant.
    pub tenant: TenantHash,
    /// Its value; of a secret one only the end.
    pub shown: String,
    /// The hour of the call, counted from 1970 in UTC.
    pub hour: u64,
}

/// The calls of one tenant in one period, on all nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CallLine {
    /// The day or month: `2027-01-15`, `2027-01`.
    pub period: String,
    /// The domain.
    pub domain: String,
    /// The tenant's value, of a secret one the end; [`None`] if no node has told it.
    pub tenant: Option<String>,
    /// The keyed hash of the value; `other` for tenants beyond what one node writes for an hour, together.
    pub hash: String,
    /// The calls that were allowed.
    pub allowed: u64,
    /// The calls that a limit of the tenant denied.
    pub denied: u64,
}

/// A part of the calls by period.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CallPage {
    /// The lines, oldest first.
    pub lines: Vec<CallLine>,
    /// The place where the lines go on; [`None`] at their end.
    pub next: Option<CallCursor>,
}

/// The place after which the next page begins, to be kept as the text that it displays as: an hour of the period, and the
/// last tenant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CallCursor(u64, String, String);

impl fmt::Display for CallCursor {
    /// Digits alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_digits(self, f)
    }
}

impl FromStr for CallCursor {
    type Err = NotAUsageCursor;

    fn from_str(text: &str) -> Result<Self, NotAUsageCursor> {
        let cursor: Self = read_digits(text)?;
        none_has_a_zero([&cursor.1, &cursor.2])?;
        Ok(cursor)
    }
}

impl QuotaStore {
    /// Writes what a node counted by hour, in place of what it wrote for the same hours before, and the names of those who
    /// called.
    ///
    /// # Errors
    /// The database cannot be used; then some of the rows may have been written.
    pub async fn write_calls(
        &self,
        calls: &[CallRow],
        callers: &[CallerRow],
    ) -> Result<(), QuotaError> {
        self.prepare().await?;
        // Names come first: whoever reads the calls finds them.
        let cells = |row: &CallerRow| {
            [
                row.domain.clone().into(),
                row.tenant.to_string().into(),
                printable(&row.shown).into(),
                Cell::number(row.hour),
            ]
        };
        let head = "INSERT INTO quota_caller (domain, api_key, shown, hour)";
        let tail = " ON CONFLICT (domain, api_key) DO UPDATE SET shown = excluded.shown, hour = excluded.hour \
                    WHERE quota_caller.hour < excluded.hour";
        self.write_rows((head, tail), callers, cells).await?;
        let cells = |row: &CallRow| {
            [
                Cell::number(row.hour),
                row.domain.clone().into(),
                name_of(row.tenant).into(),
                row.node.clone().into(),
                Cell::number(row.allowed),
                Cell::number(row.denied),
            ]
        };
        let head = "INSERT INTO quota_calls (hour, domain, api_key, node, allowed, denied)";
        let tail = " ON CONFLICT (hour, domain, api_key, node) \
                    DO UPDATE SET allowed = excluded.allowed, denied = excluded.denied";
        self.write_rows((head, tail), calls, cells).await
    }

    /// The calls that `filter` selects, added up `by` day or month, after `cursor`, oldest first; at most `most` and
    /// [`USAGE_PAGE_MAX`] lines. Calls count by hour, so an hour that `filter` begins in counts as a whole, and one that it
    /// ends in does as well. A page that takes seconds ends early, maybe without a line.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn calls_by(
        &self,
        filter: &UsageFilter,
        by: UsagePeriod,
        cursor: Option<&CallCursor>,
        most: u64,
    ) -> Result<CallPage, QuotaError> {
        self.prepare().await?;
        let most = usize::try_from(most.clamp(1, USAGE_PAGE_MAX)).unwrap_or(1);
        self.calls_page(filter, by, (cursor, most), PAGE_MAX).await
    }

    /// The same, for about as long as `patience`.
    async fn calls_page(
        &self,
        filter: &UsageFilter,
        by: UsagePeriod,
        (cursor, most): (Option<&CallCursor>, usize),
        patience: Duration,
    ) -> Result<CallPage, QuotaError> {
        let begun = Instant::now();
        let start = || CallCursor(filter.from / 60, String::new(), String::new());
        let mut next = cursor.cloned().unwrap_or_else(start);
        let until = filter.until.div_ceil(60);
        let mut lines: Vec<CallLine> = Vec::new();
        while let Some(first) = self.first_hour(filter, next.0, until).await? {
            let end = by.end(first).max(first.saturating_add(1));
            let mut after = match end == by.end(next.0) {
                true => (next.1, next.2),
                // There were no calls in the rest of that period.
                false => TenantPlace::default(),
            };
            let hours = first.max(filter.from / 60)..end.min(until);
            loop {
                let wanted = most + 1 - lines.len();
                let callers = self.callers(filter, &after, wanted).await?;
                let Some(last) = callers.last() else {
                    break;
                };
                let mut sums = self
                    .sums(filter, hours.clone(), &after, &last.place)
                    .await?;
                for caller in callers {
                    if let Some(sum) = sums.remove(&caller.place) {
                        if lines.len() == most {
                            let next = Some(CallCursor(first, after.0, after.1));
                            return Ok(CallPage { lines, next });
                        }
                        lines.push(caller.line(by.name(first), sum));
                    }
                    after = caller.place;
                }
                if begun.elapsed() >= patience {
                    let next = Some(CallCursor(first, after.0, after.1));
                    return Ok(CallPage { lines, next });
                }
            }
            next = CallCursor(hours.end, String::new(), String::new());
        }
        Ok(CallPage { lines, next: None })
    }

    /// The first hour with calls from `from` on.
    async fn first_hour(
        &self,
        filter: &UsageFilter,
        from: u64,
        until: u64,
    ) -> Result<Option<u64>, QuotaError> {
        let query = match &filter.tenant {
            None => sqlx::query("SELECT MIN(hour) AS hour FROM quota_calls WHERE hour >= $1 AND hour < $2"),
            Some((domain, tenant)) => sqlx::query(
                "SELECT MIN(hour) AS hour FROM quota_calls WHERE domain = $1 AND api_key = $2 AND hour >= $3 AND hour < $4",
            )
            .bind(domain.clone())
            .bind(tenant.to_string()),
        };
        let query = query.bind(stored(from)).bind(stored(until));
        let row = within(async { Ok(query.fetch_one(&self.pool).await?) });
        let hour: Option<i64> = row.await?.try_get("hour")?;
        hour.map(|hour| rows::whole(hour, "quota_calls"))
            .transpose()
    }
}

impl Caller {
    fn line(&self, period: String, (allowed, denied): (u64, u64)) -> CallLine {
        CallLine {
            period,
            domain: self.place.0.clone(),
            tenant: self.shown.clone(),
            hash: self.place.1.clone(),
            allowed,
            denied,
        }
    }
}

impl CallLine {
    /// The first line of a file: the names of the columns in CSV.
    #[must_use]
    pub const fn head(format: BulkFormat) -> &'static str {
        match format {
            BulkFormat::JsonLines => "",
            BulkFormat::Csv => "period,domain,tenant,hash,allowed,denied\n",
        }
    }

    /// The line of a file, with its end.
    #[must_use]
    pub fn written(&self, format: BulkFormat) -> String {
        line(format, Self::head(format), self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_plans::{Filled, key};
    use crate::{DatabaseKind, UsageFilter};

    /// The calls of a day, page by page, with so much time for each page.
    async fn lines(store: &QuotaStore, most: usize, patience: Duration) -> (Vec<CallLine>, usize) {
        let day = UsageFilter {
            from: 24 * 60,
            until: 48 * 60,
            ..UsageFilter::default()
        };
        let (mut lines, mut cursor, mut pages) = (Vec::new(), None, 0);
        loop {
            let asked = (cursor.as_ref(), most);
            let page = store.calls_page(&day, UsagePeriod::Month, asked, patience);
            let page = page.await.expect("it answers");
            lines.extend(page.lines);
            pages += 1;
            cursor = page.next;
            if cursor.is_none() {
                return (lines, pages);
            }
        }
    }

    #[tokio::test]
    async fn a_page_that_takes_long_ends_early_and_the_lines_are_the_same() {
        let filled = Filled::new(DatabaseKind::Sqlite).await;
        // More tenants than are looked at together, who did not call on that day; their hashes are anywhere.
        let other = |tenant: usize| CallRow {
            hour: 70,
            domain: "d".to_owned(),
            tenant: Some(key().hash(&format!("other {tenant}"))),
            node: "n".to_owned(),
            allowed: 1,
            denied: 0,
        };
        let others: Vec<_> = (0..2_000).map(other).collect();
        let written = filled.store.write_calls(&others, &[]).await;
        written.expect("they can be written");
        let (whole, pages) = lines(&filled.store, 10_000, Duration::MAX).await;
        assert_eq!((whole.len(), pages), (100, 1));
        assert!(
            whole.iter().all(|line| line.allowed == 24),
            "each hour once"
        );
        let (parts, pages) = lines(&filled.store, 10_000, Duration::ZERO).await;
        assert!(parts == whole && pages > 2, "{pages}");
        let (parts, pages) = lines(&filled.store, 7, Duration::MAX).await;
        assert!(parts == whole && pages == 15, "{pages}");
    }
}
