//! Loans as bytes: how a region's store keeps them beside the counter.
//!
//! ```text
//!  1   n   n times: first window, lent, held (7 bytes each)   regions (8)   then each region's loan      fixed windows
//!  2   n   n times: until, held (7 bytes each)   lent, generation (7)   regions (8)   the same,          logs and buckets
//!                                                              then of each region the answer taken last, plus 1; 0: unknown
//!  `------------- all that deciding a request reads ------------------'
//! ```
//!
//! The share in a window is what is owned, less what is lent, and what is held, of the last entry that begins by then. The
//! share in a log and a bucket is what is owned, less what is lent, and what is held until later than now, in the
//! generation that the store is in; earlier ends come first. What is owned is not kept: it comes from the rules, so that a
//! new limit counts at once. All numbers are little-endian.

mod timed;

use super::{LentPiece, WindowAnswer, WindowHeld, WindowLent, WindowLoan, WindowLoans};

/// The version of the format for fixed windows.
const VERSION: u8 = 1;

/// The most entries of shares, and the most pieces of a loan.
const ENTRIES_MAX: usize = 255;

/// The bytes of a number in an entry of shares.
const SHORT: usize = 7;

/// The largest number in an entry of shares: one that a script can hold.
const SHORT_MAX: u64 = (1 << 53) - 1;

impl WindowLoans {
    /// Encodes the loans, from `window` on, between the regions that `regions` names; [`None`] if there are too many, or
    /// too large ones.
    #[must_use]
    pub fn encode(&self, window: u64, regions: u64) -> Option<Vec<u8>> {
        let starts = self.changes(window);
        let count = u8::try_from(starts.len()).ok()?;
        let mut out = vec![VERSION, count];
        for start in starts {
            let held = self.peers.iter().map(|peer| peer.held.at(start)).sum();
            for number in [start, self.lent(start), held] {
                (number <= SHORT_MAX).then_some(())?;
                out.extend_from_slice(&number.to_le_bytes()[..SHORT]);
            }
        }
        out.extend_from_slice(&regions.to_le_bytes());
        for peer in &self.peers {
            peer.encode(&mut out)?;
        }
        Some(out)
    }

    /// The windows from which on a share differs from the one before, from `window` on.
    fn changes(&self, window: u64) -> Vec<u64> {
        let mut starts = vec![window];
        for peer in &self.peers {
            let held = &peer.held;
            starts.extend([held.first, held.first + 1, held.last + 1]);
            let pieces = peer.lent.pieces.iter();
            starts.extend(pieces.flat_map(|piece| [piece.first, piece.last + 1]));
        }
        starts.retain(|start| *start >= window);
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    /// Reads what was encoded for `regions`, of which there are `count`, in a region that owns `owns`; [`None`] if it is
    /// something else.
    #[must_use]
    pub fn decode(bytes: &[u8], owns: u64, (regions, count): (u64, usize)) -> Option<Self> {
        let mut bytes = Reader(bytes);
        (bytes.byte()? == VERSION).then_some(())?;
        let entries = usize::from(bytes.byte()?);
        bytes.take(entries * 3 * SHORT)?;
        (bytes.number()? == regions).then_some(())?;
        let peers = (0..count).map(|_| WindowLoan::decode(&mut bytes));
        let peers = peers.collect::<Option<Vec<_>>>()?;
        bytes.0.is_empty().then_some(Self {
            owns,
            grows: None,
            peers,
        })
    }
}

impl WindowLoan {
    fn encode(&self, out: &mut Vec<u8>) -> Option<()> {
        put(out, [self.asked]);
        self.held.encode(out);
        put(out, [self.lent.number]);
        let pieces = &self.lent.pieces;
        out.push(u8::try_from(pieces.len()).ok()?);
        for piece in pieces {
            put(out, [piece.first, piece.last, piece.amount]);
        }
        out.push(u8::from(self.answer.is_some()));
        if let Some(answer) = &self.answer {
            put(out, [answer.number]);
            answer.held.encode(out);
            put(out, [answer.spare]);
        }
        Some(())
    }

    fn decode(bytes: &mut Reader<'_>) -> Option<Self> {
        let asked = bytes.number()?;
        let held = WindowHeld::decode(bytes)?;
        let number = bytes.number()?;
        let pieces = usize::from(bytes.byte()?).min(ENTRIES_MAX);
        let pieces = (0..pieces).map(|_| {
            Some(LentPiece {
                first: bytes.number()?,
                last: bytes.number()?,
                amount: bytes.number()?,
            })
        });
        let pieces = pieces.collect::<Option<_>>()?;
        let answer = match bytes.byte()? {
            0 => None,
            _ => Some(WindowAnswer {
                number: bytes.number()?,
                held: WindowHeld::decode(bytes)?,
                spare: bytes.number()?,
            }),
        };
        Some(Self {
            asked,
            held,
            lent: WindowLent { number, pieces },
            answer,
        })
    }
}

impl WindowHeld {
    fn encode(&self, out: &mut Vec<u8>) {
        put(out, [self.first, self.now, self.next, self.last]);
    }

    fn decode(bytes: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            first: bytes.number()?,
            now: bytes.number()?,
            next: bytes.number()?,
            last: bytes.number()?,
        })
    }
}

fn put<const N: usize>(out: &mut Vec<u8>, numbers: [u64; N]) {
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn number(&mut self) -> Option<u64> {
        let bytes = self.take(8)?.try_into().ok()?;
        let number = u64::from_le_bytes(bytes);
        // What was added to it must not overflow.
        (number <= SHORT_MAX).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::loans::WindowFacts;

    /// The share in `window` as the script reads it.
    fn share(bytes: &[u8], owns: u64, window: u64) -> u64 {
        let entries = bytes[2..].chunks(3 * SHORT).take(usize::from(bytes[1]));
        let number = |bytes: &[u8]| {
            let digits = bytes.iter().rev();
            digits.fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let entries = entries.map(|entry| {
            let [first, lent, held] = [0, 1, 2].map(|at| number(&entry[at * SHORT..][..SHORT]));
            (first, owns.saturating_sub(lent) + held)
        });
        let entries: Vec<_> = entries.collect();
        let mut begun = entries.iter().filter(|(first, _)| *first <= window);
        begun.next_back().unwrap_or(&entries[0]).1
    }

    #[test]
    fn loans_are_read_as_they_were_written() {
        let mut lender = WindowLoans::new(300, 3);
        let mut borrower = WindowLoans::new(300, 3);
        let ask = borrower.ask(0, 1_000, (100, 80));
        let facts = WindowFacts {
            window: 1_000,
            count: 20,
            need_now: 30,
            need_next: 30,
            floor: 30,
            windows: 10,
        };
        let answer = lender.lend(1, &ask, &facts).expect("it is in time");
        assert!(borrower.accept(0, &answer));
        for loans in [lender, borrower] {
            let bytes = loans.encode(1_000, 77).expect("they fit");
            for window in 1_000..1_020 {
                assert_eq!(share(&bytes, 300, window), loans.share(window), "{window}");
            }
            assert_eq!(
                WindowLoans::decode(&bytes, 300, (77, 3)),
                Some(loans.clone())
            );
            assert_eq!(WindowLoans::decode(&bytes, 300, (78, 3)), None);
            assert_eq!(WindowLoans::decode(&bytes, 300, (77, 2)), None);
            for cut in 0..bytes.len() {
                assert_eq!(WindowLoans::decode(&bytes[..cut], 300, (77, 3)), None);
            }
        }
    }
}
