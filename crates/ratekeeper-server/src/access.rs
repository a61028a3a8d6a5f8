//! Access to the admin listener: who may read, who may change, and who is refused.
//!
//! Callers with a role come from the settings (`callers`) and from the tokens that `ratekeeper token` makes.
//! While there are none, clients that only this host can be may do everything, and all others are refused.

pub(crate) mod callers;
pub(crate) mod guesses;
mod known_tokens;
mod refusal_log;
mod tokens;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::request::Parts;

use crate::listen::{Peer, PeerAddress};
use callers::{Caller, sha256_of_bearer};
use guesses::Guesses;
pub(crate) use known_tokens::KnownTokens;
pub(crate) use refusal_log::RefusalLog;
pub use tokens::{AdminToken, AdminTokenError, Tokens};

/// The part of the admin API that a caller may use. Each role includes those before it.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads rules, usage, quotas and metrics.
    Viewer,
    /// Switches rules, changes quotas, resets usage.
    Editor,
    /// Reads the audit log, imports and exports.
    Admin,
}

impl Role {
    /// All roles, the weakest first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Editor, Self::Admin];

    /// The name in settings and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Editor => "editor",
            Self::Admin => "admin",
        }
    }
}

impl std::str::FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        let mut all = Self::ALL.into_iter();
        all.find(|role| role.name() == text).ok_or(UnknownRole)
    }
}

/// A text that names no role.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected viewer, editor or admin")]
pub struct UnknownRole;

/// The sender of an admitted request: an extension of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Operator {
    /// The name of the caller; `local` for a client on this host without credentials.
    pub(crate) name: Box<str>,
    pub(crate) role: Role,
    known_by: KnownBy,
}

/// The reason why an operator was admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum KnownBy {
    /// A token with this SHA-256.
    Token([u8; 32]),
    /// A certificate of a caller.
    Certificate,
    /// No caller had a role, and it came from where that is enough.
    Place,
}

/// The refusal of a sender.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum AccessRefused {
    #[error("authorization: expected Bearer and a token, as in `Bearer rk_admin_…`")]
    NotBearer,
    #[error("{0}")]
    WrongToken(&'static str),
    #[error(
        "say who you are: authorization: Bearer with a token from `ratekeeper token create`, or a client certificate of one \
         of the `callers` with a role"
    )]
    Unproven,
    #[error("{name:?} has the role {}; this needs {}", .has.name(), .needed.name())]
    Forbidden {
        name: Box<str>,
        has: Role,
        needed: Role,
    },
    #[error("too many wrong tokens came from this address; try again in a few seconds")]
    Guessing {
        /// The time until the next attempt counts.
        retry_after: Duration,
    },
}

/// The address that guesses of a peer count for; [`None`] for a Unix socket.
fn address(peer: Option<&Peer>) -> Option<IpAddr> {
    match peer?.address {
        PeerAddress::Tcp(address) => Some(address.ip()),
        PeerAddress::Unix => None,
    }
}

/// The callers that the admin listener knows.
#[derive(Debug)]
pub(crate) struct Access {
    /// Those of the settings that have a role.
    callers: Vec<Caller>,
    tokens: KnownTokens,
    guesses: Guesses,
    /// True if clients without a trusted certificate do not get as far as a request.
    is_closed: bool,
    refused: [AtomicU64; 3],
}

impl Access {
    /// Those of `callers` that have a role, and those with one of `tokens`; `is_closed` if the listener demands
    /// certificates.
    pub(crate) fn new(callers: &[Caller], tokens: KnownTokens, is_closed: bool) -> Self {
        let with_role = callers.iter().filter(|caller| caller.role.is_some());
        Self {
            callers: with_role.cloned().collect(),
            tokens,
            guesses: Guesses::default(),
            is_closed,
            refused: Default::default(),
        }
    }

    /// Returns true if every client has to prove who it is, on this host too: there is a caller with a role, or
    /// there was one.
    pub(crate) fn is_required(&self) -> bool {
        !self.callers.is_empty() || self.tokens.are_required()
    }

    /// The tokens that count on this node.
    pub(crate) const fn tokens(&self) -> &KnownTokens {
        &self.tokens
    }

    /// Admits the sender of a request if it has `needed`.
    pub(crate) fn admit(&self, parts: &Parts, needed: Role) -> Result<Operator, AccessRefused> {
        let peer = parts.extensions.get::<Peer>();
        let header = parts.headers.get(AUTHORIZATION);
        let known = match header {
            Some(value) => self.by_token(peer, value.as_bytes())?,
            None => match peer.and_then(|peer| self.by_certificate(peer)) {
                Some(operator) => operator,
                None => self.by_place(peer)?,
            },
        };
        if known.role < needed {
            return Err(self.refuse(AccessRefused::Forbidden {
                name: known.name,
                has: known.role,
                needed,
            }));
        }
        Ok(known)
    }

    fn by_token(
        &self,
        peer: Option<&Peer>,
        authorization: &[u8],
    ) -> Result<Operator, AccessRefused> {
        let from = address(peer);
        if !self.guesses.may_try(from) {
            return Err(self.refuse(AccessRefused::Guessing {
                retry_after: guesses::REFILL,
            }));
        }
        let Some(hash) = sha256_of_bearer(authorization) else {
            self.guesses.failed(from);
            return Err(self.refuse(AccessRefused::NotBearer));
        };
        let known = self.callers.iter().filter(|caller| caller.has_token(&hash));
        let known = known.filter_map(|caller| Some((caller.name.clone(), caller.role?)));
        let made = self.tokens.find(&hash);
        // Each is looked at: the time tells nothing of how near a guess was.
        match known.fold(made, |_, caller| Some(caller)) {
            Some((name, role)) => Ok(Operator {
                name,
                role,
                known_by: KnownBy::Token(hash),
            }),
            None => {
                self.guesses.failed(from);
                Err(self.refuse(AccessRefused::WrongToken(self.tokens.why_unknown())))
            }
        }
    }

    fn by_certificate(&self, peer: &Peer) -> Option<Operator> {
        let mut callers = self.callers.iter();
        let caller = callers.find(|caller| caller.has_certificate(peer))?;
        Some(Operator {
            name: caller.name.clone(),
            role: caller.role?,
            known_by: KnownBy::Certificate,
        })
    }

    /// Admits, while no caller has a role, who is on this host, and who presents a certificate of the
    /// authority that the listener demands.
    fn by_place(&self, peer: Option<&Peer>) -> Result<Operator, AccessRefused> {
        let is_near = peer.is_some_and(|peer| peer.is_local() && peer.by_local_listener);
        let name = match (is_near, self.is_closed) {
            _ if self.is_required() => "",
            (true, _) => "local",
            (false, true) => "certificate",
            (false, false) => "",
        };
        if name.is_empty() {
            return Err(self.refuse(AccessRefused::Unproven));
        }
        Ok(Operator {
            name: name.into(),
            role: Role::Admin,
            known_by: KnownBy::Place,
        })
    }

    /// Returns true unless the token that an operator has shown was revoked since, or it has shown none and needs one now.
    pub(crate) fn still_admits(&self, operator: &Operator) -> bool {
        match operator.known_by {
            KnownBy::Token(hash) => {
                let mut callers = self.callers.iter();
                self.tokens.find(&hash).is_some() || callers.any(|caller| caller.has_token(&hash))
            }
            KnownBy::Certificate => true,
            KnownBy::Place => !self.is_required(),
        }
    }

    fn refuse(&self, why: AccessRefused) -> AccessRefused {
        let [unauthenticated, forbidden, guessing] = &self.refused;
        let count = match why {
            AccessRefused::NotBearer | AccessRefused::WrongToken(_) | AccessRefused::Unproven => {
                unauthenticated
            }
            AccessRefused::Forbidden { .. } => forbidden,
            AccessRefused::Guessing { .. } => guessing,
        };
        count.fetch_add(1, Ordering::Relaxed);
        why
    }

    /// Refusals since the start, each with the name of its reason.
    pub(crate) fn refused(&self) -> [(&'static str, u64); 3] {
        let counts = self.refused.each_ref();
        let [unauthenticated, forbidden, guessing] =
            counts.map(|count| count.load(Ordering::Relaxed));
        [
            ("unauthenticated", unauthenticated),
            ("forbidden", forbidden),
            ("guessing", guessing),
        ]
    }
}
