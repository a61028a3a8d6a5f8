//! The state that all nodes share beside tenants: tokens of the admin API, and switches of rules.
//!
//! A change takes the next number of the one row of versions, so it reaches every node's [`Follower`](crate::Follower) as a
//! change of a tenant does, and has its row in the audit trail. The state is small, and read whole when it has changed.

mod nodes;
mod switches;
mod tokens;

use ratekeeper_core::Timestamp;
use serde::{Deserialize, Serialize};
use sqlx::Row;

use crate::database::reading;
use crate::rows;
use crate::store::within;
use crate::{QuotaError, QuotaStore};

pub use nodes::{KnownNode, NodeReport};
pub use switches::{LateSwitch, SwitchedLate};
pub use tokens::{FleetTokenError, ImportedTokens, NodeTokens, RevokedToken, TOKENS_MAX};

/// The table of the one row.
const TABLE: &str = "fleet";

/// The tokens and switches of all nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetRecord {
    /// The number of the last change of tokens; 0 if there was none.
    pub tokens_version: u64,
    /// True if there is a token, or was one: then requests without one are refused.
    pub tokens_required: bool,
    /// The tokens that count, by name.
    pub tokens: Vec<FleetToken>,
    /// The number of the last change of switches; 0 if there was none.
    pub switches_version: u64,
    /// The switched rules, by id, each with the position of its switch.
    pub switches: Vec<(Box<str>, Box<str>)>,
}

/// A token of the admin API that counts on every node, without its secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetToken {
    /// The name of its holder, by which it is revoked.
    pub name: Box<str>,
    /// The role of its holder, as the server names it.
    pub role: Box<str>,
    /// The SHA-256 of the token, in hexadecimal digits.
    pub sha256: Box<str>,
    /// The time it was made, in seconds since 1970.
    pub created_at: u64,
}

impl QuotaStore {
    /// The tokens and switches of all nodes.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn fleet(&self) -> Result<FleetRecord, QuotaError> {
        Ok(self.fleet_unless(None).await?.unwrap_or_default())
    }

    /// The same, unless nothing has changed since `known`.
    pub(crate) async fn fleet_unless(
        &self,
        known: Option<&FleetRecord>,
    ) -> Result<Option<FleetRecord>, QuotaError> {
        self.prepare().await?;
        within(async {
            let mut transaction = reading(&self.pool, self.address.kind()).await?;
            let row = sqlx::query(
                "SELECT tokens_version, tokens_required, switches_version FROM fleet WHERE id = 1",
            );
            let row = row.fetch_one(&mut *transaction).await?;
            let required: i64 = row.try_get("tokens_required")?;
            let mut state = FleetRecord {
                tokens_version: rows::whole(row.try_get("tokens_version")?, TABLE)?,
                tokens_required: required != 0,
                switches_version: rows::whole(row.try_get("switches_version")?, TABLE)?,
                ..FleetRecord::default()
            };
            let is_known = known.is_some_and(|known| {
                known.tokens_version == state.tokens_version
                    && known.switches_version == state.switches_version
            });
            if is_known {
                return Ok(None);
            }
            state.tokens = tokens::live(&mut transaction).await?;
            state.switches = switches::all(&mut transaction).await?;
            Ok(Some(state))
        })
        .await
    }
}

/// The whole seconds of a time.
fn seconds(time: Timestamp) -> u64 {
    time.as_micros() / 1_000_000
}
