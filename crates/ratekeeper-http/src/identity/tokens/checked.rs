//! Verification of tokens.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{Jwk, JwkSet, KeyAlgorithm};
use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, Validation, decode, decode_header,
    get_current_timestamp,
};

use ratekeeper_core::Timestamp;
use serde_json::Value;

use super::rejected::{RejectedTokens, Suspects};
use super::verified::VerifiedTokens;
use super::{Claims, JwtConfig, KeysPlace, OnInvalid, OneOrMany, TokenError, signatures};
use crate::identity::file::{WatchedFile, read};
use crate::identity::{IdentityError, IdentityFault, KeysFault};

/// The most keys of a key set; a token without a key id is tried with all of them.
const KEYS_MAX: usize = 64;
/// The longest token accepted, in bytes.
const TOKEN_BYTES_MAX: usize = 8 << 10;
/// The most keys to try for a token if several match its id or it has none: verification comes
/// before any limit.
const KEYS_TRIED_MAX: usize = 4;
/// The shortest secret in bytes: as long as the hash of the weakest algorithm (RFC 7518, section
/// 3.2).
const SECRET_BYTES_MIN: usize = 32;

/// The times between two fetches that may be set, and the usual one.
const REFRESH_SECS: RangeInclusive<u32> = 10..=86_400;
const REFRESH_SECS_DEFAULT: u32 = 300;

/// Verifies tokens with the keys of a file, or of a URL that somebody else fetches.
#[derive(Debug)]
pub(crate) struct Tokens {
    on_invalid: OnInvalid,
    keys: ArcSwap<Keys>,
    source: KeySource,
    leeway_secs: u64,
    /// Senders of forged tokens.
    suspects: Suspects,
    /// Validations by family of algorithms: a key of one family is never used for another.
    validations: Vec<(AlgorithmFamily, Validation)>,
}

/// The origin of keys.
#[derive(Debug)]
enum KeySource {
    File {
        file: WatchedFile,
        is_secret: bool,
    },
    Place {
        place: KeysPlace,
        /// True once a token has named a key that is not known.
        is_wanted: AtomicBool,
    },
}

/// The keys in force, and the tokens that they verified: new keys start with an empty cache.
#[derive(Debug)]
struct Keys {
    list: Vec<Key>,
    verified: VerifiedTokens,
    rejected: RejectedTokens,
}

#[derive(Debug)]
struct Key {
    id: Option<String>,
    /// The only algorithm for this key, if its owner states one.
    algorithm: Option<Algorithm>,
    key: DecodingKey,
}

impl Tokens {
    pub(in crate::identity) fn open(config: &JwtConfig) -> Result<Self, IdentityError> {
        signatures::install();
        let (keys, source) = keys_of(config).map_err(|fault| IdentityError::new("jwt", fault))?;
        let is_secret = matches!(
            source,
            KeySource::File {
                is_secret: true,
                ..
            }
        );
        Ok(Self {
            on_invalid: config.on_invalid.unwrap_or_default(),
            keys: ArcSwap::from_pointee(keys),
            source,
            suspects: Suspects::new(),
            leeway_secs: leeway_secs(config),
            validations: validations(config, is_secret)?,
        })
    }

    /// The treatment of a request whose token is not accepted.
    pub(crate) const fn on_invalid(&self) -> OnInvalid {
        self.on_invalid
    }

    /// Reloads the keys if the file has changed and is valid.
    pub(in crate::identity) fn refresh(&self) -> Result<bool, IdentityFault> {
        let KeySource::File { file, is_secret } = &self.source else {
            return Ok(false);
        };
        let Some(content) = file.changed()? else {
            return Ok(false);
        };
        let keys = Keys::read(&content, *is_secret).map_err(|fault| in_file(&file.path, fault))?;
        self.keys.store(keys.into());
        Ok(true)
    }

    /// The place of the keys, if they are to be fetched.
    pub(in crate::identity) const fn place(&self) -> Option<&KeysPlace> {
        match &self.source {
            KeySource::Place { place, .. } => Some(place),
            KeySource::File { .. } => None,
        }
    }

    /// Returns true if a token has named an unknown key since the last call.
    pub(in crate::identity) fn take_wanted(&self) -> bool {
        match &self.source {
            // Relaxed, here and below: it publishes nothing else.
            KeySource::Place { is_wanted, .. } => is_wanted.swap(false, Ordering::Relaxed),
            KeySource::File { .. } => false,
        }
    }

    /// Puts a fetched set of keys in place of the one in force.
    pub(in crate::identity) fn put(&self, content: &[u8]) -> Result<(), KeysFault> {
        self.keys.store(Keys::read(content, false)?.into());
        Ok(())
    }

    /// The claims of `token`, sent by `sender` at `at` or now; or the reason for rejecting it.
    ///
    /// Verification takes up to a millisecond, and comes before any limit. So forged tokens are
    /// remembered, and a sender of many of them has to wait until another is verified; tokens known
    /// to be good pass.
    pub(crate) fn claims(
        &self,
        token: &str,
        sender: Option<IpAddr>,
        at: Option<Timestamp>,
    ) -> Result<Arc<Claims>, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLong);
        }
        let keys = self.keys.load();
        let now = at.map_or_else(get_current_timestamp, |at| at.as_micros() / 1_000_000);
        if let Some(claims) = keys.verified.find(token, now) {
            return Ok(claims);
        }
        if keys.rejected.has(token) {
            return Err(TokenError::Forged);
        }
        if !self.suspects.may_try(sender) {
            return Err(TokenError::Suspect);
        }
        let mut wrong = 0;
        let checked = self.checked(token, &keys.list, now, &mut wrong);
        if wrong > 0 {
            self.suspects.record(sender, wrong);
        }
        match (&checked, &self.source) {
            (Err(TokenError::Forged), _) => keys.rejected.remember(token),
            (Err(TokenError::UnknownKey), KeySource::Place { is_wanted, .. }) => {
                is_wanted.store(true, Ordering::Relaxed);
                if keys.list.is_empty() {
                    return Err(TokenError::NoKeys);
                }
            }
            _ => {}
        }
        let claims = Arc::new(checked?);
        if let Some(seconds) = self.validity(&claims) {
            keys.verified.remember(token, seconds, &claims);
        }
        Ok(claims)
    }

    /// Verifies a token; adds the number of keys that did not sign it to `wrong`.
    fn checked(
        &self,
        token: &str,
        keys: &[Key],
        now: u64,
        wrong: &mut u32,
    ) -> Result<Claims, TokenError> {
        let header = decode_header(token).map_err(|error| rejection(error.kind()))?;
        if header.crit.is_some() {
            // RFC 7515, section 4.1.11: a recipient must refuse extensions that it does not
            // understand, and this one understands none.
            return Err(TokenError::CriticalExtensions);
        }
        let family = family(header.alg);
        let mut validations = self.validations.iter();
        let validation = validations.find(|(own, validation)| {
            *own == family && validation.algorithms.contains(&header.alg)
        });
        let Some((_, validation)) = validation else {
            return Err(TokenError::Algorithm);
        };
        let may_be = |key: &&Key| {
            let is_named = header.kid.is_none() || key.id.is_none() || key.id == header.kid;
            let is_for = key.algorithm.is_none_or(|own| own == header.alg);
            is_named && is_for && key.key.family() == family
        };
        let mut found = keys.iter().filter(may_be);
        if header.kid.is_none() && found.clone().nth(1).is_some() {
            return Err(TokenError::NoKeyId);
        }
        let mut why = TokenError::UnknownKey;
        for key in found.by_ref().take(KEYS_TRIED_MAX) {
            match decode::<Claims>(token, &key.key, validation) {
                Ok(data) => return self.in_time(data.claims, now),
                Err(error) => why = rejection(error.kind()),
            }
            if why != TokenError::Forged {
                // The signature is by this key, so the fault lies elsewhere.
                return Err(why);
            }
            *wrong += 1;
        }
        Err(why)
    }

    /// The claims of a token that is valid at `now`, in seconds since 1970.
    fn in_time(&self, claims: Claims, now: u64) -> Result<Claims, TokenError> {
        let time = |name| claims.get(name).map(seconds).transpose();
        let expires = time("exp")?.ok_or(TokenError::MissingClaim)?;
        if expires.saturating_add(self.leeway_secs) < now {
            return Err(TokenError::Expired);
        }
        match time("nbf")? {
            Some(from) if from > now.saturating_add(self.leeway_secs) => Err(TokenError::Immature),
            _ => Ok(claims),
        }
    }

    /// The seconds since 1970 during which a token with these claims is valid. None if the times
    /// are not whole numbers: such a token is verified each time.
    fn validity(&self, claims: &Claims) -> Option<RangeInclusive<u64>> {
        let expires = claims.get("exp")?.as_u64()?;
        let from = match claims.get("nbf") {
            None => 0,
            Some(from) => from.as_u64()?,
        };
        Some(from.saturating_sub(self.leeway_secs)..=expires.saturating_add(self.leeway_secs))
    }
}

/// The first keys, and where further ones come from. Those of a URL are none until they are fetched.
fn keys_of(config: &JwtConfig) -> Result<(Keys, KeySource), IdentityFault> {
    let (path, is_secret) = match (&config.jwks_file, &config.secret_file, &config.jwks_url) {
        (Some(path), None, None) => (path, false),
        (None, Some(path), None) => (path, true),
        (None, None, Some(url)) => {
            let place = place(config, url)?;
            let is_wanted = AtomicBool::new(false);
            return Ok((Keys::new(Vec::new()), KeySource::Place { place, is_wanted }));
        }
        _ => return Err(IdentityFault::NotOneKeyFile),
    };
    if config.jwks_ca.is_some() || config.jwks_refresh_seconds.is_some() {
        return Err(IdentityFault::NoKeyUrl);
    }
    let (content, file) = read(path)?;
    let keys = Keys::read(&content, is_secret).map_err(|fault| in_file(path, fault))?;
    Ok((keys, KeySource::File { file, is_secret }))
}

fn place(config: &JwtConfig, url: &str) -> Result<KeysPlace, IdentityFault> {
    let seconds = config.jwks_refresh_seconds.unwrap_or(REFRESH_SECS_DEFAULT);
    if !REFRESH_SECS.contains(&seconds) {
        return Err(IdentityFault::Refresh {
            seconds,
            least: *REFRESH_SECS.start(),
            most: *REFRESH_SECS.end(),
        });
    }
    Ok(KeysPlace {
        url: url.into(),
        authorities: config.jwks_ca.clone(),
        refresh_every: Duration::from_secs(seconds.into()),
    })
}

impl Keys {
    fn new(list: Vec<Key>) -> Self {
        Self {
            list,
            verified: VerifiedTokens::new(),
            rejected: RejectedTokens::new(),
        }
    }

    fn read(content: &[u8], is_secret: bool) -> Result<Self, KeysFault> {
        let list = if is_secret {
            vec![secret(content)?]
        } else {
            key_set(content)?
        };
        Ok(Self::new(list))
    }
}

/// The fault of the keys in the file at `path`.
fn in_file(path: &Path, fault: KeysFault) -> IdentityFault {
    IdentityFault::Keys {
        path: path.to_owned(),
        fault,
    }
}

fn secret(content: &[u8]) -> Result<Key, KeysFault> {
    let secret = content.trim_ascii();
    if secret.len() < SECRET_BYTES_MIN {
        return Err(KeysFault::ShortSecret {
            bytes_min: SECRET_BYTES_MIN,
        });
    }
    Ok(Key {
        id: None,
        algorithm: None,
        key: DecodingKey::from_secret(secret),
    })
}

fn key_set(content: &[u8]) -> Result<Vec<Key>, KeysFault> {
    let set: JwkSet = serde_json::from_slice(content).map_err(KeysFault::NotASet)?;
    if set.keys.len() > KEYS_MAX {
        return Err(KeysFault::TooMany { most: KEYS_MAX });
    }
    let keys: Vec<Key> = set.keys.iter().filter_map(key).collect();
    match keys.is_empty() {
        true => Err(KeysFault::NoSigningKey),
        false => Ok(keys),
    }
}

/// Converts a key. None for encryption keys and unsupported kinds: a set may contain other keys.
fn key(jwk: &Jwk) -> Option<Key> {
    use jsonwebtoken::jwk::PublicKeyUse;
    let signs = matches!(
        jwk.common.public_key_use,
        None | Some(PublicKeyUse::Signature)
    );
    let algorithm = jwk.common.key_algorithm.map(algorithm);
    Some(Key {
        id: jwk.common.key_id.clone(),
        algorithm: match algorithm {
            None => None,
            // Not for signing.
            Some(None) => return None,
            Some(known) => known,
        },
        key: DecodingKey::from_jwk(jwk).ok().filter(|_| signs)?,
    })
}

fn algorithm(named: KeyAlgorithm) -> Option<Algorithm> {
    named.to_string().parse().ok()
}

const fn family(algorithm: Algorithm) -> AlgorithmFamily {
    match algorithm {
        Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => AlgorithmFamily::Hmac,
        Algorithm::ES256 | Algorithm::ES384 => AlgorithmFamily::Ec,
        Algorithm::EdDSA => AlgorithmFamily::Ed,
        _ => AlgorithmFamily::Rsa,
    }
}

fn leeway_secs(config: &JwtConfig) -> u64 {
    config.leeway_seconds.unwrap_or(60).into()
}

const SHARED: [Algorithm; 3] = [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512];
const PUBLIC: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

fn validations(
    config: &JwtConfig,
    is_secret: bool,
) -> Result<Vec<(AlgorithmFamily, Validation)>, IdentityError> {
    let usual = if is_secret { &SHARED[..] } else { &PUBLIC };
    let allowed = match &config.algorithms {
        None => usual.to_vec(),
        Some(names) => names
            .iter()
            .map(|name| {
                let known = name.parse().ok().filter(|named| usual.contains(named));
                known.ok_or_else(|| {
                    let usual: Vec<_> = usual.iter().map(|known| format!("{known:?}")).collect();
                    let fault = IdentityFault::Algorithm {
                        name: name.as_str().into(),
                        known: usual.join(", ").into(),
                    };
                    IdentityError::new("jwt.algorithms", fault)
                })
            })
            .collect::<Result<_, _>>()?,
    };
    let families = [
        AlgorithmFamily::Hmac,
        AlgorithmFamily::Rsa,
        AlgorithmFamily::Ec,
        AlgorithmFamily::Ed,
    ];
    let validation = |own: AlgorithmFamily| {
        let algorithms: Vec<_> = allowed
            .iter()
            .copied()
            .filter(|named| family(*named) == own)
            .collect();
        let mut validation = Validation::new(*algorithms.first()?);
        validation.algorithms = algorithms;
        // `Tokens::in_time` compares them with the request's time.
        validation.validate_exp = false;
        let mut required = vec!["exp"];
        validation.validate_aud = config.audience.is_some();
        if let Some(audience) = &config.audience {
            validation.set_audience(audience.list());
            required.push("aud");
        }
        if let Some(issuer) = &config.issuer {
            validation.set_issuer(issuer.list());
            required.push("iss");
        }
        validation.set_required_spec_claims(&required);
        Some((own, validation))
    };
    Ok(families.into_iter().filter_map(validation).collect())
}

/// A date of a token in whole seconds since 1970: a NumericDate (RFC 7519, section 2), which may have a fraction.
fn seconds(claim: &Value) -> Result<u64, TokenError> {
    let rounded = || {
        let date = Duration::try_from_secs_f64(claim.as_f64()?.round());
        date.ok().map(|date| date.as_secs())
    };
    let seconds = claim.as_u64().or_else(rounded);
    seconds.ok_or(TokenError::NotAJwt)
}

const fn rejection(kind: &ErrorKind) -> TokenError {
    match kind {
        ErrorKind::InvalidSignature => TokenError::Forged,
        ErrorKind::InvalidIssuer => TokenError::Issuer,
        ErrorKind::InvalidAudience => TokenError::Audience,
        ErrorKind::MissingRequiredClaim(_) => TokenError::MissingClaim,
        ErrorKind::InvalidAlgorithm => TokenError::Algorithm,
        _ => TokenError::NotAJwt,
    }
}

impl OneOrMany {
    fn list(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

#[cfg(test)]
mod tests;
