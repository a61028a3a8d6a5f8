//! Loans of logs and buckets as bytes.

use super::{Reader, SHORT, SHORT_MAX, put};
use crate::Timestamp;
use crate::region::loans::{TimedAnswer, TimedHeld, TimedLent, TimedLoan, TimedLoans};

/// The version of the format.
const VERSION: u8 = 2;

impl TimedLoans {
    /// Encodes the loans between the regions that `regions` names, as of `generation`: what is held in another one is over.
    /// [`None`] if a number is too large.
    #[must_use]
    pub fn encode(&self, generation: u64, regions: u64) -> Option<Vec<u8>> {
        let mut held: Vec<_> = self.peers.iter().map(|peer| peer.held).collect();
        held.retain(|held| held.amount > 0 && held.generation == generation);
        held.sort_unstable_by_key(|held| held.until);
        let mut out = vec![VERSION, u8::try_from(held.len()).ok()?];
        let held = held.iter();
        let mut shorts: Vec<u64> = held
            .flat_map(|held| [held.until.as_micros(), held.amount])
            .collect();
        shorts.extend([self.lent(), generation]);
        for number in shorts {
            (number <= SHORT_MAX).then_some(())?;
            out.extend_from_slice(&number.to_le_bytes()[..SHORT]);
        }
        out.extend_from_slice(&regions.to_le_bytes());
        self.peers.iter().for_each(|peer| peer.encode(&mut out));
        let taken = self.peers.iter().map(|peer| peer.taken);
        taken.for_each(|taken| put(&mut out, [taken.map_or(0, |number| number + 1)]));
        Some(out)
    }

    /// Reads what was encoded for `regions`, of which there are `count`, in a region that owns `owns`; [`None`] if it is
    /// something else.
    #[must_use]
    pub fn decode(bytes: &[u8], owns: u64, (regions, count): (u64, usize)) -> Option<Self> {
        let mut bytes = Reader(bytes);
        (bytes.byte()? == VERSION).then_some(())?;
        let entries = usize::from(bytes.byte()?);
        bytes.take((entries + 1) * 2 * SHORT)?;
        (bytes.number()? == regions).then_some(())?;
        let peers = (0..count).map(|_| TimedLoan::decode(&mut bytes));
        let mut peers = peers.collect::<Option<Vec<_>>>()?;
        // Builds before this wrote none of these, and read nothing that has them.
        if !bytes.0.is_empty() {
            for peer in &mut peers {
                peer.taken = bytes.number()?.checked_sub(1);
            }
        }
        bytes.0.is_empty().then_some(Self { owns, peers })
    }
}

impl TimedLoan {
    fn encode(&self, out: &mut Vec<u8>) {
        let (held, lent) = (&self.held, &self.lent);
        put(out, [self.asked, held.amount, held.until.as_micros()]);
        put(out, [held.tail, held.generation, lent.number, lent.amount]);
        out.push(u8::from(self.answer.is_some()));
        if let Some(answer) = &self.answer {
            put(
                out,
                [answer.number, answer.amount, answer.tokens, answer.spare],
            );
        }
    }

    fn decode(bytes: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            asked: bytes.number()?,
            taken: None,
            held: TimedHeld {
                amount: bytes.number()?,
                until: Timestamp::from_micros(bytes.number()?),
                tail: bytes.number()?,
                generation: bytes.number()?,
            },
            lent: TimedLent {
                number: bytes.number()?,
                amount: bytes.number()?,
            },
            answer: match bytes.byte()? {
                0 => None,
                _ => Some(TimedAnswer {
                    number: bytes.number()?,
                    amount: bytes.number()?,
                    tokens: bytes.number()?,
                    spare: bytes.number()?,
                }),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::loans::{LoanTerms, TimedFacts, TimedUse};
    use crate::{Micros, Whole};

    const TERMS: LoanTerms = LoanTerms {
        window: Micros::from_secs(60),
        time: Micros::from_secs(600),
        margin: Micros::from_secs(60),
    };

    const WHOLE: Whole = Whole {
        quota: 900,
        burst: 900,
    };

    /// The share at `now` as the script reads it.
    fn share(bytes: &[u8], owns: u64, (now, generation): (Timestamp, u64)) -> u64 {
        let number = |at: usize| {
            let digits = bytes[2 + at * SHORT..][..SHORT].iter().rev();
            digits.fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let entries = usize::from(bytes[1]);
        let (lent, stamp) = (number(2 * entries), number(2 * entries + 1));
        let held = (0..entries).map(|entry| (number(2 * entry), number(2 * entry + 1)));
        let held = held.filter(|(until, _)| stamp == generation && *until > now.as_micros());
        owns.saturating_sub(lent) + held.map(|(_, amount)| amount).sum::<u64>()
    }

    #[test]
    fn loans_are_read_as_they_were_written() {
        let mut lender = TimedLoans::new(300, 3);
        let mut borrower = TimedLoans::new(300, 3);
        let now = Timestamp::from_secs(1_000);
        for peer in [0, 2] {
            let ask = borrower.ask(peer, 40, None, now);
            let facts = TimedFacts {
                used: TimedUse::Bucket(300, WHOLE),
                need: 30,
                floor: 30,
            };
            let answer = lender.lend(1, &ask, &facts).expect("it is in time").answer;
            let elapsed = Micros::from_secs(peer as u64);
            assert!(borrower.accept(peer, &answer, (elapsed, &TERMS), (now, 7)));
            lender.peers[1].lent.number = 0;
        }
        assert!(borrower.share() > 300);
        for loans in [lender, borrower] {
            let bytes = loans.encode(7, 77).expect("they fit");
            let read = TimedLoans::decode(&bytes, 300, (77, 3)).expect("they are ours");
            assert_eq!(read, loans);
            for later in [0, 597, 598, 599, 600, 601] {
                for generation in [7, 8] {
                    let now = now.after(Micros::from_secs(later));
                    let mut dropped = read.clone();
                    while let Some((peer, end)) = dropped.over(now, generation) {
                        dropped.drop_held(peer, end);
                    }
                    let told = share(&bytes, 300, (now, generation));
                    assert_eq!(told, dropped.share(), "{later} s in {generation}");
                }
            }
            assert_eq!(TimedLoans::decode(&bytes, 300, (78, 3)), None);
            assert_eq!(TimedLoans::decode(&bytes, 300, (77, 2)), None);
            // As builds wrote it that did not tell what was taken.
            let before = bytes.len() - 3 * 8;
            let mut unknown = loans.clone();
            unknown.peers.iter_mut().for_each(|peer| peer.taken = None);
            assert_eq!(
                TimedLoans::decode(&bytes[..before], 300, (77, 3)),
                Some(unknown)
            );
            for cut in (0..bytes.len()).filter(|cut| *cut != before) {
                assert_eq!(TimedLoans::decode(&bytes[..cut], 300, (77, 3)), None);
            }
        }
    }
}
