//! Permissions to do more than check: overrides, refunds, permits and reservations.
//!
//! A client that presents no credentials on a listener that only this host can reach may do all of
//! these. Any other client presents a bearer token or a client certificate listed in the settings,
//! and may do what its entry allows.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use http::header::ORIGIN;
use sha2::{Digest, Sha256};

use crate::access::guesses::Guesses;
use crate::access::{RefusalLog, Role, address};
use crate::listen::Peer;
use crate::listen::tls::ClientName;

/// A client that may do more than check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The name that its permits and reservations are bound to.
    pub name: Box<str>,
    /// The proof that identifies it.
    pub proof: Proof,
    /// The operations it is allowed.
    pub may: Powers,
    /// Its role in the admin API, if it may use that.
    pub role: Option<Role>,
}

impl Caller {
    const fn is_by_token(&self) -> bool {
        matches!(self.proof, Proof::TokenSha256(_))
    }

    /// Returns true if it is the one that has the token with this hash. Compares in constant time.
    pub(crate) fn has_token(&self, hash: &[u8; 32]) -> bool {
        matches!(&self.proof, Proof::TokenSha256(known) if is_equal(known, hash))
    }

    /// Returns true if a name in the peer's certificate is the caller's.
    pub(crate) fn has_certificate(&self, peer: &Peer) -> bool {
        match &self.proof {
            Proof::TlsName(wanted) => peer.names.iter().any(|name| wanted.matches(name)),
            Proof::TokenSha256(_) => false,
        }
    }
}

/// The proof that identifies a caller.
#[derive(Clone, PartialEq, Eq)]
pub enum Proof {
    /// The SHA-256 of the bearer token in `authorization`.
    TokenSha256([u8; 32]),
    /// A subject alternative name of its verified certificate.
    TlsName(ClientName),
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TokenSha256(_) => f.write_str("TokenSha256(..)"),
            Self::TlsName(name) => f.debug_tuple("TlsName").field(name).finish(),
        }
    }
}

/// The operations that a caller is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Powers {
    /// Override limits in requests.
    pub overrides: bool,
    /// Refund hits.
    pub refund: bool,
    /// Acquire, renew and release permits; reserve, commit and cancel.
    pub hold: bool,
    /// Ask for parts of limits that regions lend each other, as the region of the caller's name.
    pub regions: bool,
}

impl Powers {
    const fn has(self, power: Power) -> bool {
        match power {
            Power::Override => self.overrides,
            Power::Refund => self.refund,
            Power::Hold => self.hold,
            Power::Regions => self.regions,
        }
    }
}

/// One thing that needs a permission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Power {
    Override,
    Refund,
    Hold,
    Regions,
}

impl Power {
    /// Its name in the settings.
    const fn name(self) -> &'static str {
        match self {
            Self::Override => "override",
            Self::Refund => "refund",
            Self::Hold => "hold",
            Self::Regions => "regions",
        }
    }
}

/// The reason that a sender may not ask for this.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NotPermitted {
    /// The sender is not known.
    #[error("{0}")]
    Unknown(&'static str),
    /// It is known, and may not.
    #[error("{0}")]
    Forbidden(String),
    /// Its address has presented too many wrong tokens.
    #[error("too many wrong tokens came from this address; try again in a few seconds")]
    Guessing,
}

/// A sender that has the permission it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Admitted<'a> {
    /// Its name; empty for a client that presents no credentials.
    pub(crate) name: &'a str,
    /// True if it is allowed only because it is on this host. A web page in a browser is on this
    /// host as well; the edge has to tell the two apart.
    pub(crate) is_by_place: bool,
    /// True if it has shown a token, which no browser sends for a page of its own accord.
    by_token: bool,
}

impl Admitted<'_> {
    /// Refuses a web page that is admitted only because its browser is on this host, or has a certificate. No page has a
    /// reason to speak gRPC, so that an origin among the `headers` of a call is enough.
    pub(crate) fn unless_page(self, headers: &HeaderMap) -> Result<Self, NotPermitted> {
        match !self.by_token && headers.contains_key(ORIGIN) {
            true => Err(NotPermitted::Forbidden(
                "web pages may not ask for this".to_owned(),
            )),
            false => Ok(self),
        }
    }
}

/// A caller, or a client on this host that presents no credentials.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identified<'a>(Option<&'a Caller>);

impl<'a> Identified<'a> {
    /// Checks for the permission. A client on this host that presents no credentials may do
    /// everything.
    pub(crate) fn may(self, power: Power) -> Result<(), NotPermitted> {
        match self.0 {
            Some(Caller { name, may, .. }) if !may.has(power) => {
                let power = power.name();
                Err(NotPermitted::Forbidden(format!(
                    "the caller {name:?} may not do this: it needs `{power}` in `may` of its entry in `callers`"
                )))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn admitted(self) -> Admitted<'a> {
        Admitted {
            name: self.0.map_or("", |caller| &caller.name),
            is_by_place: self.0.is_none(),
            by_token: self.0.is_some_and(Caller::is_by_token),
        }
    }
}

/// The callers of the settings.
#[derive(Debug)]
pub(crate) struct Callers {
    callers: Vec<Caller>,
    /// Wrong tokens on the listeners for checks. They count apart from those of the admin listener: a caller with an old token
    /// is not to lock out the operator behind the same address who mends it.
    guesses: Guesses,
    log: RefusalLog,
    /// Wrong tokens, and tokens that were not looked at for those before them.
    refused: [AtomicU64; 2],
}

impl Callers {
    pub(crate) fn new(callers: Vec<Caller>) -> Self {
        Self {
            callers,
            guesses: Guesses::default(),
            log: RefusalLog::default(),
            refused: Default::default(),
        }
    }

    /// Refusals of tokens since the start, each with the name of its reason.
    pub(crate) fn refused(&self) -> [(&'static str, u64); 2] {
        let [unknown, guessing] = &self.refused;
        [
            ("unauthenticated", unknown.load(Ordering::Relaxed)),
            ("guessing", guessing.load(Ordering::Relaxed)),
        ]
    }

    /// Returns the sender if it has the permission `power`. `authorization` is the header of that
    /// name.
    pub(crate) fn admit(
        &self,
        peer: Option<&Peer>,
        authorization: Option<&[u8]>,
        power: Power,
    ) -> Result<Admitted<'_>, NotPermitted> {
        let known = self.identify(peer, authorization)?;
        known.may(power)?;
        Ok(known.admitted())
    }

    /// Identifies the sender: a caller from the settings, or a client on this host that presents no
    /// credentials. `authorization` is the header of that name.
    ///
    /// The listener counts as well as the peer's address: on a listener that other hosts can reach,
    /// a proxy on this host may be forwarding their requests.
    pub(crate) fn identify(
        &self,
        peer: Option<&Peer>,
        authorization: Option<&[u8]>,
    ) -> Result<Identified<'_>, NotPermitted> {
        let is_local = peer.is_some_and(|peer| peer.is_local() && peer.by_local_listener);
        let known = match authorization {
            Some(value) => Some(self.by_token(peer, value)?),
            None => peer.and_then(|peer| self.by_name(peer)),
        };
        if known.is_none() && !is_local {
            return Err(NotPermitted::Unknown(
                "say who you are: authorization: Bearer with a token, or a client certificate, that `callers` in \
                 the settings knows; only on a loopback address or a Unix socket that is not needed",
            ));
        }
        Ok(Identified(known))
    }

    /// The caller with this token. While its address is over its limit of wrong ones, a token with a role is refused as they
    /// are: an answer would tell that it is right. Others are admitted, since many callers may share an address, and one of
    /// them with an old token is not to stop them all.
    fn by_token(&self, peer: Option<&Peer>, authorization: &[u8]) -> Result<&Caller, NotPermitted> {
        let hash = sha256_of_bearer(authorization).ok_or(NotPermitted::Unknown(
            "authorization: expected Bearer and a token",
        ))?;
        // All are compared, each in whole: the time tells nothing of how near a guess was.
        let mut found = None;
        for caller in &self.callers {
            if caller.has_token(&hash) {
                found = Some(caller);
            }
        }
        match found {
            Some(caller) if caller.role.is_none() => Ok(caller),
            found => self.unless_guessed(address(peer), found),
        }
    }

    fn unless_guessed<'a>(
        &self,
        from: Option<IpAddr>,
        found: Option<&'a Caller>,
    ) -> Result<&'a Caller, NotPermitted> {
        let [unknown, guessing] = &self.refused;
        let (count, why) = match (self.guesses.may_try(from), found) {
            (true, Some(caller)) => return Ok(caller),
            (true, None) => {
                self.guesses.failed(from);
                (
                    unknown,
                    NotPermitted::Unknown("authorization: the token is unknown"),
                )
            }
            (false, _) => (guessing, NotPermitted::Guessing),
        };
        count.fetch_add(1, Ordering::Relaxed);
        if let Some(silenced) = self.log.may_say() {
            tracing::warn!(?from, %why, silenced, "a caller is refused");
        }
        Err(why)
    }

    fn by_name(&self, peer: &Peer) -> Option<&Caller> {
        let mut callers = self.callers.iter();
        callers.find(|caller| caller.has_certificate(peer))
    }
}

/// The SHA-256 of the token in an authorization header; [`None`] if it has another scheme than Bearer.
pub(crate) fn sha256_of_bearer(authorization: &[u8]) -> Option<[u8; 32]> {
    let (scheme, token) = authorization.split_at_checked(7)?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"bearer ");
    is_bearer.then(|| Sha256::digest(token.trim_ascii()).into())
}

/// Looks at every byte, wherever they differ.
pub(crate) fn is_equal(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let differences = one.iter().zip(other).map(|(a, b)| a ^ b);
    std::hint::black_box(differences.fold(0, |all, each| all | each)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::PeerAddress;
    use crate::listen::tls::PeerName;

    fn peer(address: &str, names: &[&str]) -> Peer {
        Peer {
            address: PeerAddress::Tcp(address.parse().expect("an address")),
            names: names
                .iter()
                .map(|name| PeerName::Dns((*name).into()))
                .collect(),
            by_local_listener: true,
        }
    }

    fn callers() -> Callers {
        let may = Powers {
            hold: true,
            ..Powers::default()
        };
        let caller = |name: &str, proof| Caller {
            name: name.into(),
            proof,
            may,
            role: None,
        };
        let callers = vec![
            caller(
                "token",
                Proof::TokenSha256(Sha256::digest(b"secret").into()),
            ),
            caller(
                "tls",
                Proof::TlsName("billing.example".parse().expect("a name")),
            ),
        ];
        Callers::new(callers)
    }

    #[test]
    fn strangers_show_a_token_or_a_certificate() {
        let callers = callers();
        let far = peer("10.0.0.1:1", &[]);
        let admit = |peer: &Peer, header: Option<&str>, power| {
            let admitted = callers.admit(Some(peer), header.map(str::as_bytes), power)?;
            assert!(!admitted.is_by_place);
            Ok(admitted.name)
        };
        assert!(matches!(
            admit(&far, None, Power::Hold),
            Err(NotPermitted::Unknown(_))
        ));
        assert_eq!(admit(&far, Some("Bearer secret"), Power::Hold), Ok("token"));
        assert_eq!(
            admit(&far, Some("bearer  secret "), Power::Hold),
            Ok("token")
        );
        let wrong = [
            "Bearer secre",
            "Bearer ",
            "Basic secret",
            "secret",
            "",
            "Bearer secret2",
        ];
        for wrong in wrong {
            assert!(
                matches!(
                    admit(&far, Some(wrong), Power::Hold),
                    Err(NotPermitted::Unknown(_))
                ),
                "{wrong}"
            );
        }
        let refused = admit(&far, Some("Bearer secret"), Power::Refund);
        assert!(matches!(refused, Err(NotPermitted::Forbidden(why)) if why.contains("`refund`")));
        let named = peer("10.0.0.1:1", &["x", "billing.example"]);
        assert_eq!(admit(&named, None, Power::Hold), Ok("tls"));
        let shouted = peer("10.0.0.1:1", &["Billing.Example"]);
        assert_eq!(admit(&shouted, None, Power::Hold), Ok("tls"));
        let otherwise = Peer {
            names: [PeerName::Uri("billing.example".into())].into(),
            ..far.clone()
        };
        assert!(admit(&otherwise, None, Power::Hold).is_err());
        assert!(matches!(
            admit(&named, None, Power::Override),
            Err(NotPermitted::Forbidden(_))
        ));
        assert!(callers.admit(None, None, Power::Hold).is_err());
    }

    #[test]
    fn whoever_is_on_this_host_alone_may_do_all_of_it() {
        let callers = callers();
        let near = peer("127.0.0.1:1", &[]);
        let by_open_listener = Peer {
            by_local_listener: false,
            ..near.clone()
        };
        let by_place = Admitted {
            name: "",
            is_by_place: true,
            by_token: false,
        };
        for power in [Power::Hold, Power::Refund, Power::Override] {
            assert_eq!(callers.admit(Some(&near), None, power), Ok(by_place));
            assert!(
                callers
                    .admit(Some(&near), Some(b"Bearer x"), power)
                    .is_err()
            );
            assert!(matches!(
                callers.admit(Some(&by_open_listener), None, power),
                Err(NotPermitted::Unknown(_))
            ));
        }
    }

    #[test]
    fn a_page_may_do_nothing_for_being_on_this_host() {
        let callers = callers();
        let mut of_page = HeaderMap::new();
        of_page.insert(ORIGIN, http::HeaderValue::from_static("null"));
        let near = peer("127.0.0.1:1", &[]);
        for (header, may) in [(None, false), (Some(b"Bearer secret".as_slice()), true)] {
            let admitted = callers.admit(Some(&near), header, Power::Hold);
            let admitted = admitted.expect("it has the permission");
            assert_eq!(admitted.unless_page(&HeaderMap::new()), Ok(admitted));
            assert_eq!(admitted.unless_page(&of_page).is_ok(), may);
        }
        // A browser sends certificates along by itself, and no tokens.
        let named = peer("10.0.0.1:1", &["billing.example"]);
        let admitted = callers.admit(Some(&named), None, Power::Hold);
        let admitted = admitted.expect("it has the permission");
        assert_eq!(admitted.unless_page(&HeaderMap::new()), Ok(admitted));
        assert!(admitted.unless_page(&of_page).is_err());
    }

    #[test]
    fn whoever_is_known_may_do_what_is_its_own_wherever_it_is() {
        let callers = callers();
        let near = peer("127.0.0.1:1", &["billing.example"]);
        for header in [None, Some(b"Bearer secret".as_slice())] {
            let held = callers.admit(Some(&near), header, Power::Hold);
            assert!(held.is_ok_and(|held| !held.is_by_place && !held.name.is_empty()));
            let refused = callers.admit(Some(&near), header, Power::Refund);
            assert!(matches!(refused, Err(NotPermitted::Forbidden(_))));
        }
    }
}
