//! Command counts from Redis.

use std::ops::{AddAssign, Sub};

use ratekeeper_testkit::redis::Client;

/// The commands that other clients than this program sent, by the server's counts.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Seen {
    /// Calls of the script, or of commands outside it.
    pub(crate) calls: f64,
    /// Commands, where the script and each command in it count as one.
    pub(crate) commands: f64,
    /// Increments of synced counters.
    pub(crate) increments: f64,
    /// Server time in the script, in microseconds.
    pub(crate) script_us: f64,
}

impl Seen {
    pub(crate) fn by(client: &mut Client) -> Self {
        Self::read(&client.ask(&["INFO", "commandstats"]).text())
    }

    /// The lines are `cmdstat_get:calls=3,usec=7,…`.
    fn read(text: &str) -> Self {
        let mut seen = Self::default();
        for line in text.lines() {
            let Some((name, rest)) = line
                .strip_prefix("cmdstat_")
                .and_then(|line| line.split_once(':'))
            else {
                continue;
            };
            if ["incr", "info"].contains(&name) {
                continue;
            }
            let field = |field: &str| {
                let mut fields = rest.split(',');
                let value = fields.find_map(|text| text.strip_prefix(field)?.parse().ok());
                value.unwrap_or(0.0)
            };
            seen.commands += field("calls=");
            if name == "incrby" {
                seen.increments += field("calls=");
            }
            if name == "evalsha" {
                seen.calls += field("calls=");
                seen.script_us += field("usec=");
            }
        }
        seen
    }
}

impl Sub for Seen {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            calls: self.calls - before.calls,
            commands: self.commands - before.commands,
            increments: self.increments - before.increments,
            script_us: self.script_us - before.script_us,
        }
    }
}

impl AddAssign for Seen {
    fn add_assign(&mut self, more: Self) {
        self.calls += more.calls;
        self.commands += more.commands;
        self.increments += more.increments;
        self.script_us += more.script_us;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_commands_are_left_out() {
        let text = "# Commandstats\r\n\
            cmdstat_evalsha:calls=10,usec=120,usec_per_call=12.00,rejected_calls=0,failed_calls=0\r\n\
            cmdstat_get:calls=11,usec=5,usec_per_call=0.45\r\n\
            cmdstat_incr:calls=500,usec=9\r\ncmdstat_incrby:calls=4,usec=2\r\ncmdstat_info:calls=3,usec=900\r\n";
        let seen = Seen::read(text);
        assert_eq!((seen.calls, seen.commands), (10.0, 25.0));
        assert_eq!(seen.increments, 4.0);
        assert_eq!(seen.script_us, 120.0);
    }
}
