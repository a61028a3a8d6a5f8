//! Making and revoking tokens of all nodes.

use std::collections::HashSet;

use ratekeeper_core::Timestamp;
use serde_json::{Value, json};
use sqlx::any::AnyRow;
use sqlx::{Any, Row, Transaction};

use super::{FleetToken, seconds};
use crate::audit::Entry;
use crate::change::Change;
use crate::rows::{self, stored};
use crate::store::within;
use crate::{Editor, QuotaError, QuotaStore};

/// The most tokens that can count at one time.
pub const TOKENS_MAX: usize = 1_000;

/// The most revoked tokens that are remembered; the oldest go first.
const REVOKED_MAX: i64 = 10_000;

/// The reason why a token of all nodes cannot be made or revoked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetTokenError {
    /// The name is taken.
    #[error("there is a token for {0:?} already; revoke it first")]
    Taken(Box<str>),
    /// No token has the name.
    #[error("there is no token for {0:?}")]
    Unknown(Box<str>),
    /// There are as many as can be.
    #[error("there are {TOKENS_MAX} tokens already")]
    TooMany,
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] QuotaError),
}

/// A token that was revoked on a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RevokedToken {
    /// The name of its holder.
    pub name: Box<str>,
    /// The SHA-256 of the token, in hexadecimal digits.
    pub sha256: Box<str>,
}

/// The tokens of a node that has kept them in a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeTokens {
    /// The tokens that count there.
    pub tokens: Vec<FleetToken>,
    /// Those that were revoked there.
    pub revoked: Vec<RevokedToken>,
    /// True if requests without a token are refused there.
    pub required: bool,
}

/// The fate of the tokens of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ImportedTokens {
    /// The number of those that are new.
    pub added: usize,
    /// The names of those that are not there because there are as many as can be.
    pub left_out: Vec<Box<str>>,
}

impl QuotaStore {
    /// Makes a token count on every node. Returns the number of the change.
    ///
    /// # Errors
    /// Its name is taken, there are too many, or the database cannot be used.
    pub async fn create_token(
        &self,
        token: &FleetToken,
        editor: &Editor,
    ) -> Result<u64, FleetTokenError> {
        self.prepare().await?;
        let mut refused = None;
        let made = within(async {
            let mut change = self.begin().await?;
            let live = live(&mut change.transaction).await?;
            if live.iter().any(|known| known.name == token.name) {
                refused = Some(FleetTokenError::Taken(token.name.clone()));
                return Ok(0);
            }
            if live.len() >= TOKENS_MAX {
                refused = Some(FleetTokenError::TooMany);
                return Ok(0);
            }
            change.add_token(token, None).await?;
            change
                .audit(&entry(
                    "token.create",
                    &token.name,
                    None,
                    described(token),
                    editor,
                ))
                .await?;
            self.commit_tokens(change).await
        })
        .await;
        refused.map_or_else(|| Ok(made?), Err)
    }

    /// Revokes every token of that name. Returns the number of the change.
    ///
    /// # Errors
    /// There is none, or the database cannot be used.
    pub async fn revoke_token(&self, name: &str, editor: &Editor) -> Result<u64, FleetTokenError> {
        self.prepare().await?;
        let mut is_unknown = false;
        let revoked = within(async {
            let mut change = self.begin().await?;
            let live = live(&mut change.transaction).await?;
            let Some(known) = live.iter().find(|known| *known.name == *name) else {
                is_unknown = true;
                return Ok(0);
            };
            sqlx::query(
                "UPDATE admin_token SET revoked_at = $1 WHERE name = $2 AND revoked_at IS NULL",
            )
            .bind(stored(change.now.as_micros()))
            .bind(name.to_owned())
            .execute(&mut *change.transaction)
            .await?;
            change.forget_oldest().await?;
            change
                .audit(&entry("token.revoke", name, described(known), None, editor))
                .await?;
            self.commit_tokens(change).await
        })
        .await;
        match is_unknown {
            true => Err(FleetTokenError::Unknown(name.into())),
            false => Ok(revoked?),
        }
    }

    /// Adds what a node has kept in its file: the union, in which a revocation wins.
    ///
    /// # Errors
    /// The database cannot be used; then none is added.
    pub async fn import_tokens(
        &self,
        of_node: &NodeTokens,
        editor: &Editor,
    ) -> Result<ImportedTokens, QuotaError> {
        self.prepare().await?;
        within(async {
            let mut change = self.begin().await?;
            let known = hashes(&mut change.transaction).await?;
            let before = live(&mut change.transaction).await?;
            let revoked: HashSet<&str> = of_node.revoked.iter().map(|it| &*it.sha256).collect();
            for it in &of_node.revoked {
                change.revoke_hash(it, known.contains(&*it.sha256)).await?;
            }
            let ended = before.iter().filter(|it| revoked.contains(&*it.sha256));
            let ended: Vec<_> = ended.map(described).collect();
            let is_new = |token: &&FleetToken| {
                !known.contains(&*token.sha256) && !revoked.contains(&*token.sha256)
            };
            let new: Vec<_> = of_node.tokens.iter().filter(is_new).collect();
            let room = TOKENS_MAX.saturating_sub(before.len() - ended.len());
            let (added, left_out) = new.split_at(room.min(new.len()));
            for token in added {
                change.add_token(token, None).await?;
            }
            let names = |all: &[&FleetToken]| -> Vec<_> {
                all.iter().map(|token| described(token)).collect()
            };
            let after = json!({
                "added": names(added),
                "revoked": ended,
                "left_out": names(left_out),
            });
            change
                .audit(&entry(
                    "token.import",
                    &editor.source,
                    None,
                    Some(after),
                    editor,
                ))
                .await?;
            if of_node.required || !added.is_empty() {
                self.commit_tokens(change).await?;
            } else {
                // Revocations alone: who had no token yet still needs none.
                change.mark("tokens_version").await?;
                self.commit(change).await?;
            }
            Ok(ImportedTokens {
                added: added.len(),
                left_out: left_out.iter().map(|token| token.name.clone()).collect(),
            })
        })
        .await
    }

    /// Commits a change after which requests without a token are refused.
    async fn commit_tokens(&self, mut change: Change) -> Result<u64, QuotaError> {
        change.mark("tokens_version").await?;
        sqlx::query("UPDATE fleet SET tokens_required = 1 WHERE id = 1")
            .execute(&mut *change.transaction)
            .await?;
        let version = change.version;
        self.commit(change).await?;
        Ok(version)
    }
}

impl Change {
    async fn add_token(
        &mut self,
        token: &FleetToken,
        revoked_at: Option<i64>,
    ) -> Result<(), QuotaError> {
        let made = Timestamp::from_secs(token.created_at).as_micros();
        let query = sqlx::query(
            "INSERT INTO admin_token (sha256, name, role, created_at, revoked_at) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (sha256) DO NOTHING",
        );
        query
            .bind(token.sha256.to_string())
            .bind(token.name.to_string())
            .bind(token.role.to_string())
            .bind(stored(made))
            .bind(revoked_at)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Revokes the token with this hash, even if this node does not know it yet.
    async fn revoke_hash(
        &mut self,
        revoked: &RevokedToken,
        is_known: bool,
    ) -> Result<(), QuotaError> {
        let now = stored(self.now.as_micros());
        if is_known {
            sqlx::query(
                "UPDATE admin_token SET revoked_at = $1 WHERE sha256 = $2 AND revoked_at IS NULL",
            )
            .bind(now)
            .bind(revoked.sha256.to_string())
            .execute(&mut *self.transaction)
            .await?;
            return Ok(());
        }
        let trace = FleetToken {
            name: revoked.name.clone(),
            role: "".into(),
            sha256: revoked.sha256.clone(),
            created_at: seconds(self.now),
        };
        self.add_token(&trace, Some(now)).await
    }

    /// Forgets the oldest revoked tokens beyond those that are remembered.
    async fn forget_oldest(&mut self) -> Result<(), QuotaError> {
        sqlx::query(
            "DELETE FROM admin_token WHERE revoked_at < (SELECT revoked_at FROM admin_token \
             WHERE revoked_at IS NOT NULL ORDER BY revoked_at DESC LIMIT 1 OFFSET $1)",
        )
        .bind(REVOKED_MAX - 1)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Records that this change is the last one of what `column` counts, which is a name of ours.
    pub(super) async fn mark(&mut self, column: &'static str) -> Result<(), QuotaError> {
        let query = match column {
            "tokens_version" => "UPDATE fleet SET tokens_version = $1 WHERE id = 1",
            _ => "UPDATE fleet SET switches_version = $1 WHERE id = 1",
        };
        sqlx::query(query)
            .bind(stored(self.version))
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }
}

/// The tokens that count, by name.
pub(super) async fn live(
    transaction: &mut Transaction<'_, Any>,
) -> Result<Vec<FleetToken>, QuotaError> {
    let rows = sqlx::query(
        "SELECT sha256, name, role, created_at FROM admin_token WHERE revoked_at IS NULL ORDER BY name, created_at",
    );
    let rows = rows.fetch_all(&mut **transaction).await?;
    let read = |row: &AnyRow| {
        let text =
            |column: &str| Ok::<Box<str>, QuotaError>(row.try_get::<String, _>(column)?.into());
        Ok(FleetToken {
            name: text("name")?,
            role: text("role")?,
            sha256: text("sha256")?,
            created_at: seconds(rows::time(row.try_get("created_at")?)),
        })
    };
    rows.iter().map(read).collect()
}

/// The hashes of all tokens that are known, revoked ones too.
async fn hashes(transaction: &mut Transaction<'_, Any>) -> Result<HashSet<String>, QuotaError> {
    let rows = sqlx::query("SELECT sha256 FROM admin_token");
    let rows = rows.fetch_all(&mut **transaction).await?;
    let hashes = rows.iter().map(|row| Ok(row.try_get("sha256")?));
    hashes.collect()
}

/// The entry of the audit trail; a token is in it without its hash.
fn entry<'a>(
    action: &'static str,
    subject: &'a str,
    before: Option<Value>,
    after: Option<Value>,
    editor: &'a Editor,
) -> Entry<'a> {
    Entry {
        action,
        domain: "",
        subject: subject.into(),
        before,
        after,
        editor,
    }
}

fn described(token: &FleetToken) -> Option<Value> {
    Some(json!({ "name": token.name, "role": token.role }))
}
