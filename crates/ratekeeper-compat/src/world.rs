//! A set of rules and modes under which both services run.

use anyhow::Result;
use fastrand::Rng;

use crate::random::chance;
use crate::rules::Domain;
use crate::target::Environment;

/// Domains of a world; one task serves each, so that no two tasks share a counter.
const DOMAINS: u64 = 16;

/// Rules, and the modes under which they run.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) number: u64,
    pub(crate) domains: Vec<Domain>,
    pub(crate) modes: Modes,
}

/// The settings of envoyproxy/ratelimit that change answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Modes {
    pub(crate) shadow: bool,
    pub(crate) quota: bool,
    pub(crate) merge: bool,
    headers: bool,
    named_headers: bool,
    metadata: bool,
}

impl World {
    /// The world with that number in a run.
    pub(crate) fn random(rng: &mut Rng, number: u64) -> Self {
        let modes = Modes {
            shadow: chance(rng, 12),
            quota: chance(rng, 12),
            merge: chance(rng, 50),
            headers: chance(rng, 70),
            named_headers: chance(rng, 30),
            metadata: chance(rng, 40),
        };
        let domain = |index: u64| {
            // Unique names, so that counters left in Redis by one world do not affect another.
            let odd = ["", ".x", " y", "_z", "ü"][(index % 5) as usize];
            let name = format!("w{number}d{index}{odd}");
            let merged = modes.merge && chance(rng, 40);
            Domain::random(rng, name, merged)
        };
        let domains = (0..DOMAINS).map(domain).collect();
        Self {
            number,
            domains,
            modes,
        }
    }

    /// A world whose answers can be recorded: all units a day or longer, no mode that affects all
    /// rules.
    pub(crate) fn to_keep(rng: &mut Rng) -> Self {
        let mut world = Self::random(rng, 0);
        world.modes = Modes {
            shadow: false,
            quota: false,
            merge: false,
            headers: true,
            named_headers: false,
            metadata: true,
        };
        for (index, domain) in world.domains.iter_mut().enumerate() {
            *domain = Domain::random(rng, format!("d{index}"), false);
            domain.lengthen();
        }
        world
    }

    /// Writes the rules into the folder from which both load them.
    pub(crate) fn write(&self, at: &Environment<'_>) -> Result<()> {
        for (domain, rules) in self.domains.iter().enumerate() {
            for (file, text) in rules.texts().iter().enumerate() {
                at.write(&format!("d{domain:02}-{file}.yaml"), text)?;
            }
        }
        Ok(())
    }

    /// Environment variables of envoyproxy/ratelimit, which both services get.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let Modes {
            shadow,
            quota,
            merge,
            headers,
            named_headers,
            metadata,
        } = self.modes;
        let mut all = vec![
            ("SHADOW_MODE", shadow.to_string()),
            ("QUOTA_MODE", quota.to_string()),
            ("MERGE_DOMAIN_CONFIG", merge.to_string()),
            ("LIMIT_RESPONSE_HEADERS_ENABLED", headers.to_string()),
            ("RESPONSE_DYNAMIC_METADATA", metadata.to_string()),
        ];
        if named_headers {
            all.push(("LIMIT_LIMIT_HEADER", "X-Limit".into()));
            all.push(("LIMIT_REMAINING_HEADER", "X-Left".into()));
            all.push(("LIMIT_RESET_HEADER", "x-reset-in".into()));
        }
        all
    }
}
