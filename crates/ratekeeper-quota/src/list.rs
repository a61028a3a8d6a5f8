//! Lists of tenants.

use std::fmt;
use std::str::FromStr;

use ratekeeper_core::Micros;
use ratekeeper_rules::{CUSTOM, TenantHash};
use sqlx::{AssertSqlSafe, Row};

use crate::database::reading;
use crate::rows::{self, Kept, stored, tenant_columns};
use crate::store::within;
use crate::{QuotaError, QuotaStore, TenantRecord};

/// The tenants to list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListFilter {
    /// Only those of this domain.
    pub domain: Option<String>,
    /// Only those that are on this plan, now or at another time; with `custom`, those that have overrides alone.
    pub plan: Option<String>,
    /// Only those that have, or have not, limits of their own.
    pub has_overrides: Option<bool>,
}

/// The place in a list after which the next page begins; to be kept as the text that it displays as.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListCursor {
    domain: String,
    hash: TenantHash,
}

impl fmt::Display for ListCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.hash, self.domain)
    }
}

/// A text that is no cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a cursor from a list of tenants")]
pub struct NotACursor;

impl FromStr for ListCursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (hash, domain) = text.split_once('.').ok_or(NotACursor)?;
        // No domain has it, and PostgreSQL takes no text that does.
        if domain.contains('\0') {
            return Err(NotACursor);
        }
        Ok(Self {
            domain: domain.to_owned(),
            hash: hash.parse().map_err(|_| NotACursor)?,
        })
    }
}

/// A part of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ListPage {
    /// The tenants, by domain and hash.
    pub records: Vec<TenantRecord>,
    /// The place where the list goes on; [`None`] at its end.
    pub next: Option<ListCursor>,
}

/// The most tenants of a page.
pub const PAGE_MAX: usize = 500;

impl ListFilter {
    /// Returns true if it names what nothing is called: PostgreSQL takes no text with a zero in it.
    fn selects_nothing(&self) -> bool {
        let mut names = [&self.domain, &self.plan].into_iter().flatten();
        names.any(|name| name.contains('\0'))
    }

    /// Returns true if it selects tenants that are shown as on no plan: they have overrides alone.
    fn is_custom(&self) -> bool {
        self.plan.as_deref() == Some(CUSTOM)
    }

    /// The query of a page: after the tenant of $1 and $2, in domain $3, on plan $4, at most $5.
    fn query(&self) -> String {
        let own = "EXISTS (SELECT 1 FROM quota_override o WHERE o.domain = t.domain AND o.api_key = t.api_key)";
        let on_plan =
            "SELECT 1 FROM tenant_plan p WHERE p.domain = t.domain AND p.api_key = t.api_key";
        let mut query = format!(
            "SELECT {} FROM tenant t WHERE t.deleted_at IS NULL AND (t.domain, t.api_key) > ($1, $2) \
             AND ($3 = '' OR t.domain = $3) AND ($4 = '' OR EXISTS ({on_plan} AND p.tier = $4))",
            tenant_columns!()
        );
        match self.has_overrides {
            Some(true) => query.push_str(&format!(" AND {own}")),
            Some(false) => query.push_str(&format!(" AND NOT {own}")),
            None => {}
        }
        if self.is_custom() {
            query.push_str(&format!(" AND {own} AND NOT EXISTS ({on_plan})"));
        }
        query + " ORDER BY t.domain, t.api_key LIMIT $5"
    }
}

impl QuotaStore {
    /// The tenants that `filter` selects, after `cursor`; at most `most` and [`PAGE_MAX`].
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn list(
        &self,
        filter: &ListFilter,
        cursor: Option<&ListCursor>,
        most: usize,
    ) -> Result<ListPage, QuotaError> {
        self.prepare().await?;
        let most = most.clamp(1, PAGE_MAX);
        if filter.selects_nothing() {
            return Ok(ListPage {
                records: Vec::new(),
                next: None,
            });
        }
        within(async {
            let mut transaction = reading(&self.pool, self.address.kind()).await?;
            let after = cursor.map(|cursor| (cursor.domain.clone(), cursor.hash.to_string()));
            let (domain, hash) = after.unwrap_or_default();
            let plan = filter.plan.clone().filter(|_| !filter.is_custom());
            let rows = sqlx::query(AssertSqlSafe(filter.query()))
                .bind(domain)
                .bind(hash)
                .bind(filter.domain.clone().unwrap_or_default())
                .bind(plan.unwrap_or_default())
                .bind(stored(most as u64 + 1))
                .fetch_all(&mut *transaction)
                .await?;
            let mut kept = rows.iter().map(rows::kept).collect::<Result<Vec<_>, _>>()?;
            let has_more = kept.len() > most;
            kept.truncate(most);
            rows::add_quotas(&mut transaction, &mut kept).await?;
            let records: Vec<_> = kept.into_iter().map(|kept| kept.record).collect();
            let next = records.last().filter(|_| has_more).map(|last| ListCursor {
                domain: last.id.domain.clone(),
                hash: last.id.hash,
            });
            Ok(ListPage { records, next })
        })
        .await
    }

    /// The number of tenants.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn count(&self) -> Result<u64, QuotaError> {
        self.prepare().await?;
        within(async {
            let row =
                sqlx::query("SELECT COUNT(*) AS tenants FROM tenant WHERE deleted_at IS NULL");
            let row = row.fetch_one(&self.pool).await?;
            rows::whole(row.try_get("tenants")?, "tenant")
        })
        .await
    }

    /// Drops the traces of tenants that were deleted longer ago than `kept`, by the database's clock, and never reset.
    pub(crate) async fn forget_deleted(&self, kept: Micros) -> Result<u64, QuotaError> {
        let now = self.clock();
        let query = format!("DELETE FROM tenant WHERE deleted_at < {now} - $1 AND epoch = 0");
        within(async {
            let done = sqlx::query(AssertSqlSafe(query))
                .bind(stored(kept.get()))
                .execute(&self.pool)
                .await?;
            Ok(done.rows_affected())
        })
        .await
    }

    /// The tenants that changed after `version`, in the order of their changes; at most [`PAGE_MAX`].
    pub(crate) async fn changes(&self, version: u64) -> Result<Vec<Kept>, QuotaError> {
        within(async {
            let mut transaction = reading(&self.pool, self.address.kind()).await?;
            let rows = sqlx::query(concat!(
                "SELECT ",
                tenant_columns!(),
                " FROM tenant t WHERE t.version > $1 ORDER BY t.version LIMIT $2"
            ))
            .bind(stored(version))
            .bind(stored(PAGE_MAX as u64))
            .fetch_all(&mut *transaction)
            .await?;
            let mut kept = rows.iter().map(rows::kept).collect::<Result<Vec<_>, _>>()?;
            rows::add_quotas(&mut transaction, &mut kept).await?;
            Ok(kept)
        })
        .await
    }
}
