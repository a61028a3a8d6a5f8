//! Loans of logs and buckets as bytes.

use super::{LoanRegions, Reader, SHORT, SHORT_MAX, put, put_count};
use crate::region::loans::{TimedAnswer, TimedHeld, TimedLent, TimedLoan, TimedLoans};
use crate::{RegionId, Timestamp};

/// The version of the format.
const VERSION: u8 = 2;

impl TimedLoans {
    /// Encodes the loans between `regions`, as of `generation`: what is held in another one is over. [`None`] if a number is
    /// too large.
    #[must_use]
    pub fn encode(&self, generation: u64, regions: &LoanRegions) -> Option<Vec<u8>> {
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
        let loans = regions.with(&self.left).zip(&self.peers).enumerate();
        let kept = loans.filter(|(place, (_, loan))| match *place < regions.count() {
            true => **loan != TimedLoan::NONE,
            false => loan.lent.amount > 0 || loan.held.amount > 0,
        });
        let kept: Vec<_> = kept.map(|(_, loan)| loan).collect();
        put_count(&mut out, kept.len())?;
        for (region, loan) in kept {
            put(&mut out, [region.get()]);
            loan.encode(&mut out);
            put(&mut out, [loan.taken.map_or(0, |number| number + 1)]);
        }
        Some(out)
    }

    /// Reads what was encoded, in one of `regions` that owns `owns`; [`None`] if it is something else, or if a build before
    /// this encoded it for other regions.
    #[must_use]
    pub fn decode(bytes: &[u8], owns: u64, regions: &LoanRegions) -> Option<Self> {
        let mut bytes = Reader(bytes);
        (bytes.byte()? == VERSION).then_some(())?;
        let entries = usize::from(bytes.byte()?);
        bytes.take((entries + 1) * 2 * SHORT)?;
        let (peers, left) = match bytes.count(regions)? {
            Some(count) => {
                let loans = (0..count).map(|_| {
                    let region = RegionId::from_bits(bytes.number()?);
                    let loan = TimedLoan::decode(&mut bytes)?;
                    let taken = bytes.number()?.checked_sub(1);
                    Some((region, TimedLoan { taken, ..loan }))
                });
                regions.place(loans.collect::<Option<_>>()?, &TimedLoan::NONE)
            }
            None => (decode_all(&mut bytes, regions.count())?, Vec::new()),
        };
        bytes.0.is_empty().then_some(Self { owns, peers, left })
    }
}

/// Reads the loans of all regions in the order of their names, as builds before this wrote them.
fn decode_all(bytes: &mut Reader<'_>, count: usize) -> Option<Vec<TimedLoan>> {
    let peers = (0..count).map(|_| TimedLoan::decode(bytes));
    let mut peers = peers.collect::<Option<Vec<_>>>()?;
    // The first builds wrote none of these.
    if !bytes.0.is_empty() {
        for peer in &mut peers {
            peer.taken = bytes.number()?.checked_sub(1);
        }
    }
    Some(peers)
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
    use super::super::tests::{four, three, two, written_before};
    use super::*;
    use crate::region::loans::{LoanTerms, TimedAsk, TimedFacts, TimedUse};
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
            let bytes = loans.encode(7, &three()).expect("they fit");
            let read = TimedLoans::decode(&bytes, 300, &three()).expect("they are ours");
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
            for cut in 0..bytes.len() {
                assert_eq!(TimedLoans::decode(&bytes[..cut], 300, &three()), None);
            }
            // As builds wrote it that did not tell what was taken, and as those wrote it that did.
            let mut before = written_before(&bytes, &loans.peers, TimedLoan::encode);
            assert_eq!(TimedLoans::decode(&before, 300, &four()), None);
            let mut unknown = loans.clone();
            unknown.peers.iter_mut().for_each(|peer| peer.taken = None);
            assert_eq!(TimedLoans::decode(&before, 300, &three()), Some(unknown));
            let taken = loans.peers.iter().map(|peer| peer.taken);
            taken.for_each(|taken| put(&mut before, [taken.expect("it is known") + 1]));
            assert_eq!(TimedLoans::decode(&before, 300, &three()), Some(loans));
            assert_eq!(TimedLoans::decode(&before, 300, &four()), None);
        }
    }

    #[test]
    fn loans_are_those_of_their_regions_whichever_others_there_are() {
        let now = Timestamp::from_secs(1_000);
        let mut loans = TimedLoans::new(300, 3);
        let ask = TimedAsk {
            number: 1,
            hold: 0,
            want: 40,
            taken: Some(0),
        };
        let facts = TimedFacts {
            used: TimedUse::Log(0),
            need: 30,
            floor: 30,
        };
        loans.lend(2, &ask, &facts).expect("it is the first ask");
        let ask = loans.ask(0, 50, None, now);
        let answer = TimedAnswer {
            number: ask.number,
            amount: 50,
            tokens: 0,
            spare: 0,
        };
        assert!(loans.accept(0, &answer, (Micros::ZERO, &TERMS), (now, 7)));
        assert_eq!(loans.share(), 310);
        let bytes = loans.encode(7, &three()).expect("they fit");
        let more = TimedLoans::decode(&bytes, 300, &four()).expect("they are ours");
        assert_eq!((more.peers.len(), more.share()), (4, 310));
        assert_eq!(more.peers[1], loans.peers[0]);
        assert_eq!(more.peers[3], loans.peers[2]);
        let again = more.encode(7, &four()).expect("they fit");
        assert_eq!(TimedLoans::decode(&again, 300, &three()), Some(loans));
        // The borrower leaves: what was lent to it counts until it is taken back.
        let mut less = TimedLoans::decode(&bytes, 300, &two()).expect("they are ours");
        assert_eq!((less.peers.len(), less.share()), (3, 310));
        assert_eq!(less.left, [RegionId::of("us")]);
        let kept = less.encode(7, &two()).expect("they fit");
        assert_eq!(TimedLoans::decode(&kept, 300, &two()).as_ref(), Some(&less));
        assert!(less.regain(2, 1));
        let kept = less.encode(7, &two()).expect("they fit");
        let less = TimedLoans::decode(&kept, 300, &two()).expect("they are ours");
        assert_eq!((less.left.len(), less.share()), (0, 350));
    }
}
