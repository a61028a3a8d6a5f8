//! The names of counters in Redis.

use ratekeeper_core::Timestamp;
use ratekeeper_store::CounterKey;

/// The number of slots in a cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// The digits of base64url, which has no brace to steer a slot with.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Digits of 64 bits.
const LENGTH: usize = 11;

/// Makes the keys of counters: `rk:{h1}h2`, with h1 the hash of domain and subject (the hash
/// tag: one subject's counters lie in one slot) and h2 that of the counter's identity, 11
/// digits of base64url each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyName {
    prefix: Box<[u8]>,
    /// True if all keys lie on one server, whatever their slots.
    has_one_server: bool,
}

impl Default for KeyName {
    fn default() -> Self {
        Self::new("rk:")
    }
}

impl KeyName {
    /// Makes keys that begin with `prefix`, up to its first `{`: a brace would steer the slots.
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        let end = prefix.find('{').unwrap_or(prefix.len());
        Self {
            prefix: prefix.as_bytes()[..end].into(),
            has_one_server: false,
        }
    }

    /// The same for keys that lie on one server: a request to be carried out only once is then known by its id alone,
    /// whatever its counters.
    #[must_use]
    pub fn on_one_server(self) -> Self {
        Self {
            has_one_server: true,
            ..self
        }
    }

    /// Makes the keys of counters that probes hit.
    pub(crate) fn of_probes(&self) -> Self {
        Self {
            prefix: [&*self.prefix, b"probe:"].concat().into(),
            has_one_server: self.has_one_server,
        }
    }

    /// Appends the key of a counter.
    pub fn counter(&self, key: CounterKey, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        out.push(b'{');
        out.extend_from_slice(&digits(key.subject));
        out.push(b'}');
        out.extend_from_slice(&digits(key.identity));
    }

    /// Appends the key of a synced counter's count in the (sub-)window that begins at `start`.
    pub fn window(&self, key: CounterKey, start: Timestamp, out: &mut Vec<u8>) {
        self.counter(key, out);
        // No digit of a counter's own key.
        out.push(b':');
        out.extend_from_slice(start.as_micros().to_string().as_bytes());
    }

    /// Appends the key of the nodes' marks beside that count.
    pub fn marks(&self, key: CounterKey, start: Timestamp, out: &mut Vec<u8>) {
        self.window(key, start, out);
        out.extend_from_slice(b":marks");
    }

    /// Appends the key of what regions have lent each other of a counter.
    pub fn loans(&self, key: CounterKey, out: &mut Vec<u8>) {
        self.counter(key, out);
        out.extend_from_slice(b":loans");
    }

    /// Appends the key of what other regions have posted of a counter that regions count together.
    pub fn totals(&self, key: CounterKey, out: &mut Vec<u8>) {
        self.counter(key, out);
        out.extend_from_slice(b":totals");
    }

    /// The key of a counter, for display.
    pub(crate) fn text(&self, key: CounterKey) -> String {
        let mut name = Vec::new();
        self.counter(key, &mut name);
        String::from_utf8_lossy(&name).into_owned()
    }

    /// Appends the key that remembers a request to be carried out only once, in a cluster beside the
    /// counters of that subject. A counter's key is shorter, so the two never collide.
    pub fn once(&self, subject: u64, id: u128, out: &mut Vec<u8>) {
        let subject = if self.has_one_server { 0 } else { subject };
        out.extend_from_slice(&self.prefix);
        out.push(b'{');
        out.extend_from_slice(&digits(subject));
        out.push(b'}');
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of the id")]
        let [high, low] = [(id >> 64) as u64, (id & u128::from(u64::MAX)) as u64];
        out.extend_from_slice(&digits(high));
        out.extend_from_slice(&digits(low));
    }
}

/// The slot of a subject's counters in a cluster: 0 to 16,383.
#[must_use]
pub fn slot(subject: u64) -> u16 {
    crc16(&digits(subject)) % SLOTS
}

fn digits(mut bits: u64) -> [u8; LENGTH] {
    let mut out = [0; LENGTH];
    for digit in out.iter_mut().rev() {
        *digit = DIGITS[(bits % 64) as usize];
        bits /= 64;
    }
    out
}

/// The slot of a key without a hash tag.
pub(crate) fn slot_of_key(key: &str) -> u16 {
    crc16(key.as_bytes()) % SLOTS
}

/// The CRC that clusters hash keys with: XMODEM's, polynomial 0x1021.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (crc << 8) ^ CRCS[usize::from((crc >> 8) ^ u16::from(*byte))]
    })
}

/// The CRC of each byte alone.
#[expect(clippy::cast_possible_truncation, reason = "below 256")]
const CRCS: [u16; 256] = {
    let mut crcs = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
            bit += 1;
        }
        crcs[byte] = crc;
        byte += 1;
    }
    crcs
};

#[cfg(test)]
mod tests {
    use super::*;

    fn key(subject: u64, identity: u64) -> String {
        let mut out = Vec::new();
        KeyName::default().counter(CounterKey { subject, identity }, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn keys_differ_where_their_counters_do() {
        assert_eq!(key(0, u64::MAX), "rk:{AAAAAAAAAAA}P__________");
        assert_eq!(key(1 << 6, 63), "rk:{AAAAAAAAABA}AAAAAAAAAA_");
    }

    #[test]
    fn a_prefix_cannot_steer_slots() {
        assert_eq!(KeyName::new("a{b}c"), KeyName::new("a"));
    }

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        // The check value of CRC-16/XMODEM.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(crc16(b""), 0);
    }
}
