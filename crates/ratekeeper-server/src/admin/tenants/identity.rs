//! The one tenant that a name means. Denials and the quota database know tenants by different things: two of them are
//! told as one only where the value, or its keyed hash, says that they are.

use std::collections::HashMap;
use std::sync::Arc;

use http::StatusCode;
use ratekeeper_limiter::Snapshot;
use ratekeeper_quota::{QuotaError, TenantRecord};
use ratekeeper_rules::TenantHash;

use super::GROUPS_MAX;
use super::found::Found;
use super::place::Place;
use crate::QuotaAdmin;
use crate::admin::named::{ENDING_MIN, Named};
use crate::admin::quotas::HASH;
use crate::app::App;
use crate::http::ApiError;

/// The tenant that a name means, as far as it is known.
pub(super) struct Meant {
    pub(super) named: Named,
    pub(super) found: Found,
    /// The tenant in the quota database, if that is there and has it.
    pub(super) record: Option<TenantRecord>,
}

/// Looks for the tenant that `named` means.
///
/// # Errors
/// The name means several.
pub(super) async fn meant(
    app: &App,
    snapshot: &Snapshot,
    place: Option<Place<'_>>,
    named: Named,
    missing: &mut Vec<String>,
) -> Result<Meant, ApiError> {
    let mut search = Search {
        app,
        snapshot,
        place,
        missing,
    };
    let mut meant = match named {
        Named::Value(_) => search.by_value(named).await?,
        Named::Fingerprint(_) => search.by_fingerprint(named).await,
        Named::Hash(_) => search.by_hash(named).await,
        Named::Ending(_) => search.by_ending(named).await?,
    };
    if let Some(place) = place {
        let others = meant.found.keep_tenants(place, meant.record.is_some());
        if !others.is_empty() {
            let others: Vec<_> = others.into_iter().take(GROUPS_MAX).collect();
            let domain = place.domain.name();
            let others = others.join(", ");
            missing.push(format!(
                "also denied: {others}, which is no tenant of domain {domain}"
            ));
        }
    }
    Ok(meant)
}

struct Search<'a> {
    app: &'a App,
    snapshot: &'a Snapshot,
    place: Option<Place<'a>>,
    missing: &'a mut Vec<String>,
}

impl Search<'_> {
    /// The tenant of this value, or else the one whose secret ends so.
    async fn by_value(&mut self, named: Named) -> Result<Meant, ApiError> {
        let found = self.denials(&named).await;
        let record = match &named {
            Named::Value(text) => self.stored(self.hash_of(text)).await,
            _ => None,
        };
        if let (None, true, Some(ending)) = (&record, found.groups.is_empty(), named.as_ending()) {
            if self.place.is_some_and(|place| !place.is_secret()) {
                self.note_longer(&ending).await;
            } else if let Some(meant) = self.by_end_of_secret(ending).await? {
                return Ok(meant);
            }
        }
        Ok(Meant {
            named,
            found,
            record,
        })
    }

    /// The tenant of which somebody typed what is shown of its secret, or more than that if it is known to end so.
    async fn by_end_of_secret(&mut self, ending: Named) -> Result<Option<Meant>, ApiError> {
        let Named::Ending(end) = &ending else {
            return Ok(None);
        };
        let (end, is_as_shown) = (end.clone(), end.chars().count() == ENDING_MIN);
        let notes = self.missing.len();
        let meant = match self.by_ending(ending).await {
            Err(error) if is_as_shown => return Err(error),
            // More than is shown may be a whole secret, which is nobody else's.
            Err(_) => return Ok(None),
            Ok(meant) => meant,
        };
        let secret = meant.found.secret(self.app, self.place);
        let ends_so = secret.map_or(is_as_shown, |secret| secret.ends_with(&end));
        let is_one = meant.record.is_some() || !meant.found.groups.is_empty();
        if ends_so && is_one {
            return Ok(Some(meant));
        }
        self.missing.truncate(notes);
        Ok(None)
    }

    /// Says that there are tenants whose names end in this one, which is whole.
    async fn note_longer(&mut self, ending: &Named) {
        let Named::Ending(end) = ending else {
            return;
        };
        let found = self.denials(ending).await;
        let tenants = self.place.map(|place| found.tenants(place));
        let is_denied = tenants.is_some_and(|tenants| !tenants.is_empty());
        if is_denied || !self.ending_in(end).await.is_empty() {
            self.missing.push(format!(
                "tenants whose names end in {end} are others: ask for *{end}"
            ));
        }
    }

    /// The tenant of a fingerprint, which says nothing of the database; but this node may have denied the key.
    async fn by_fingerprint(&mut self, named: Named) -> Meant {
        let found = self.denials(&named).await;
        let record = match found.secret(self.app, self.place) {
            Some(secret) => self.stored(self.hash_of(&secret)).await,
            None => {
                self.note_namesakes(&found).await;
                None
            }
        };
        Meant {
            named,
            found,
            record,
        }
    }

    /// The tenant of a keyed hash, with the denials of the values that have it.
    async fn by_hash(&mut self, named: Named) -> Meant {
        let hash = match &named {
            Named::Hash(text) => text.strip_prefix(HASH).and_then(|hash| hash.parse().ok()),
            _ => None,
        };
        let record = self.stored(hash).await;
        let secrets = self.hashes_of_secrets();
        let is_tenant = |domain: &str, entry: &str| {
            let Some(value) = self.place.and_then(|place| place.value(domain, entry)) else {
                return false;
            };
            let of_entry = secrets.get(entry).copied();
            hash.is_some() && of_entry.or_else(|| self.hash_of(value)) == hash
        };
        let found = Found::of(self.app, self.snapshot, self.place, is_tenant).await;
        if let (true, Some(record)) = (found.groups.is_empty(), &record) {
            self.note_denied_namesakes(&record.id.shown, &secrets).await;
        }
        Meant {
            named,
            found,
            record,
        }
    }

    /// The only tenant that ends so, among those that were denied and those in the database.
    async fn by_ending(&mut self, named: Named) -> Result<Meant, ApiError> {
        let Named::Ending(end) = &named else {
            return self.nobody(named).await;
        };
        let found = self.denials(&named).await;
        let stored = self.ending_in(end).await;
        let tenants = self.place.map(|place| found.tenants(place));
        let mut denied = tenants.unwrap_or_default();
        if denied.is_empty() && stored.is_empty() {
            denied = found.keys();
        }
        let of_denied = self.hash_of_denied(&found);
        // Which of these the denied one is, or whether it is any, is not known without its value.
        let is_unclear = denied.len() == 1 && of_denied.is_none();
        let others = stored.iter().filter(|hash| Some(**hash) != of_denied);
        let others: Vec<_> = others.copied().filter(|_| !is_unclear).collect();
        if denied.len() + others.len() > 1 {
            let denied = denied.iter().map(|entry| (*entry).to_owned());
            let mut names: Vec<_> = denied.take(GROUPS_MAX).collect();
            for hash in others {
                let name = self.name_of(hash).await;
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            return Err(ambiguous(end, &names));
        }
        let record = match is_unclear {
            true => {
                self.note_namesakes(&found).await;
                None
            }
            false => self.stored(of_denied.or(others.first().copied())).await,
        };
        Ok(Meant {
            named,
            found,
            record,
        })
    }

    /// The keyed hash of the only tenant that was denied, if its value is known.
    fn hash_of_denied(&self, found: &Found) -> Option<TenantHash> {
        let place = self.place?;
        if let Some(secret) = found.secret(self.app, self.place) {
            return self.hash_of(&secret);
        }
        let mut values = found.groups.iter();
        let value = values.find_map(|group| place.value(&group.domain, &group.key));
        value
            .filter(|_| !place.is_secret())
            .and_then(|value| self.hash_of(value))
    }

    async fn nobody(&mut self, named: Named) -> Result<Meant, ApiError> {
        let found = self.denials(&named).await;
        Ok(Meant {
            named,
            found,
            record: None,
        })
    }

    async fn denials(&self, named: &Named) -> Found {
        let is_tenant = named.test(self.snapshot);
        let is_tenant = |_: &str, entry: &str| is_tenant(entry);
        Found::of(self.app, self.snapshot, self.place, is_tenant).await
    }

    /// The quota database and the domain, if both are there.
    fn database(&self) -> Option<(&QuotaAdmin, Place<'_>)> {
        Some((self.app.config.quotas.as_ref()?, self.place?))
    }

    fn hash_of(&self, value: &str) -> Option<TenantHash> {
        let (quotas, _) = self.database()?;
        Some(quotas.store.key().hash(value))
    }

    /// The tenant with this hash, if the database has it.
    async fn stored(&mut self, hash: Option<TenantHash>) -> Option<TenantRecord> {
        let (quotas, place) = self.database()?;
        let record = quotas.store.get(place.domain.name(), hash?).await;
        self.known(record).flatten()
    }

    /// The tenants of the database that end so, two at most.
    async fn ending_in(&mut self, end: &str) -> Vec<TenantHash> {
        let Some((quotas, place)) = self.database() else {
            return Vec::new();
        };
        let ids = quotas.store.ending_in(place.domain.name(), end).await;
        self.known(ids).unwrap_or_default()
    }

    /// The answer of the database; why there is none is told once.
    fn known<T>(&mut self, answer: Result<T, QuotaError>) -> Option<T> {
        answer
            .map_err(|error| {
                let text = format!("no plans and no changes: {error}");
                if !self.missing.contains(&text) {
                    self.missing.push(text);
                }
            })
            .ok()
    }

    /// The name by which a tenant of the database is asked for: what is shown of a secret may be another one's too.
    async fn name_of(&mut self, hash: TenantHash) -> String {
        let key = self.place.filter(|place| !place.is_secret());
        let key = key.map(|place| place.key.to_owned());
        match (key, self.stored(Some(hash)).await) {
            (Some(key), Some(record)) => format!("{key}:{}", record.id.shown),
            _ => format!("{HASH}{hash}"),
        }
    }

    /// The keyed hashes of the secrets that this node has denied in the last hour, by their entries.
    fn hashes_of_secrets(&self) -> HashMap<Arc<str>, TenantHash> {
        let now = self.app.limiter.clock().now();
        let cases = self
            .app
            .limiter
            .top()
            .cases(now, |case| case.secret.is_some());
        let cases = cases.into_iter().filter_map(|case| {
            let hash = self.hash_of(case.secret.as_ref()?.reveal())?;
            Some((case.subject, hash))
        });
        cases.collect()
    }

    /// Says that the database has tenants which end as the denied one does, whose value this node does not know.
    async fn note_namesakes(&mut self, found: &Found) {
        let Some(group) = found.groups.first() else {
            return;
        };
        let Ok(Named::Ending(end)) = Named::read(&group.tenant, "tenant") else {
            return;
        };
        if !self.ending_in(&end).await.is_empty() {
            self.missing.push(format!(
                "no plan: the quota database has a tenant that ends in {end}, and nothing here says if it is this one"
            ));
        }
    }

    /// Says that other nodes have denied a key which ends as the tenant of the database does.
    async fn note_denied_namesakes(&mut self, shown: &str, known: &HashMap<Arc<str>, TenantHash>) {
        let Ok(ending @ Named::Ending(_)) = Named::read(shown, "tenant") else {
            return;
        };
        let found = self.denials(&ending).await;
        let tenants = self.place.map(|place| found.tenants(place));
        let mut tenants = tenants.unwrap_or_default().into_iter();
        if tenants.any(|entry| !known.contains_key(entry)) {
            self.missing.push(format!(
                "other nodes denied a tenant that is shown as {shown}, and nothing here says if it is this one"
            ));
        }
    }
}

fn ambiguous(end: &str, names: &[String]) -> ApiError {
    let message = format!("several tenants end in {end}: {}", names.join(", "));
    ApiError::other(StatusCode::CONFLICT, "AMBIGUOUS_TENANT", message)
}
