//! The server's description of itself.

use crate::server_error::ServerError;

/// The relevant fields of the answer to INFO.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Greeting {
    /// The Redis version whose commands it supports: Valkey reports one as well.
    redis_version: String,
    valkey_version: Option<String>,
    policy: Option<String>,
    maxmemory: u64,
    /// Its uptime in seconds, if it reports one.
    pub(crate) uptime: Option<u64>,
}

/// The oldest Redis whose scripts and commands suffice.
const OLDEST: (u32, u32) = (6, 2);

impl Greeting {
    pub(crate) fn read(info: &str) -> Self {
        let mut greeting = Self::default();
        for line in info.lines() {
            let Some((name, value)) = line.trim_end().split_once(':') else {
                continue;
            };
            match name {
                "redis_version" => greeting.redis_version = value.to_owned(),
                "valkey_version" => greeting.valkey_version = Some(value.to_owned()),
                "maxmemory_policy" => greeting.policy = Some(value.to_owned()),
                "uptime_in_seconds" => greeting.uptime = value.parse().ok(),
                "maxmemory" => greeting.maxmemory = value.parse().unwrap_or(0),
                _ => {}
            }
        }
        greeting
    }

    /// The server's name and version, such as `Redis 7.0.15`.
    pub(crate) fn name(&self) -> String {
        match &self.valkey_version {
            Some(version) => format!("Valkey {version}"),
            None if self.redis_version.is_empty() => "Redis of an unknown version".to_owned(),
            None => format!("Redis {}", self.redis_version),
        }
    }

    /// Returns the reason that it cannot keep counters, if it cannot.
    pub(crate) fn refusal(&self) -> Option<ServerError> {
        let mut numbers = self.redis_version.split('.').map(str::parse);
        let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
            return None;
        };
        ((major, minor) < OLDEST).then(|| ServerError::TooOld {
            server: self.name(),
        })
    }

    /// Returns warnings about settings that will cause trouble later.
    pub(crate) fn warnings(&self, shard: &str) -> Vec<String> {
        let policy = self.policy.as_deref().unwrap_or("noeviction");
        if policy == "noeviction" {
            return Vec::new();
        }
        let when = match self.maxmemory {
            0 => "once maxmemory is set".to_owned(),
            bytes => format!("when {bytes} bytes are full"),
        };
        vec![format!(
            "Redis at {shard} has maxmemory-policy {policy}: {when} it forgets live counters, and lets \
             more pass than their limits; set it to noeviction"
        )]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(lines: &[&str]) -> Greeting {
        Greeting::read(&lines.join("\r\n"))
    }

    #[test]
    fn old_servers_are_refused_by_name() {
        for (version, refused) in [
            ("6.0.20", true),
            ("5.0.7", true),
            ("6.2.0", false),
            ("7.0.15", false),
        ] {
            let line = format!("redis_version:{version}");
            let refusal = greeting(&["# Server", &line]).refusal();
            assert_eq!(refusal.is_some(), refused, "{version}");
            assert!(refusal.is_none_or(|why| why.to_string().contains(version)));
        }
        let valkey = greeting(&["redis_version:7.2.4", "valkey_version:9.1.2"]);
        assert_eq!(valkey.name(), "Valkey 9.1.2");
        assert!(valkey.refusal().is_none());
    }

    #[test]
    fn a_policy_that_forgets_counters_is_warned_of() {
        let warnings = |policy: &str| greeting(&["redis_version:7.0.1", policy]).warnings("h:1");
        assert!(warnings("maxmemory_policy:noeviction").is_empty());
        assert!(warnings("maxmemory_policy:allkeys-lru")[0].contains("noeviction"));
        // Counters have an expiry, so they are the first to go.
        assert!(!warnings("maxmemory_policy:volatile-ttl").is_empty());
    }
}
