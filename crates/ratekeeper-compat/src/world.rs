//! One set of rules and modes that both services run under.

use anyhow::Result;
use fastrand::Rng;

use crate::random::chance;
use crate::rules::Domain;
use crate::target::Surroundings;

/// Domains of a world; each is played to by one task, so that no two share a counter.
const DOMAINS: u64 = 16;

/// Rules and the modes they run under.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) number: u64,
    pub(crate) domains: Vec<Domain>,
    pub(crate) modes: Modes,
}

/// The switches of the incumbent that change answers.
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
    /// The `number`th of a run.
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
            // Names of their own, so that what one world leaves in Redis concerns no other.
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

    /// One whose answers can be kept: all units of a day or longer, no mode for all rules.
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

    /// Writes the rules to where both look for them.
    pub(crate) fn write(&self, at: &Surroundings<'_>) -> Result<()> {
        for (domain, rules) in self.domains.iter().enumerate() {
            for (file, text) in rules.texts().iter().enumerate() {
                at.write(&format!("d{domain:02}-{file}.yaml"), text)?;
            }
        }
        Ok(())
    }

    /// The incumbent's environment variables, which both services are given.
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
