//! Loans as bytes: how a region's store keeps them beside the counter.
//!
//! ```text
//!  1   n   n times: first window, lent, held (7 bytes each)               loans      fixed windows
//!  2   n   n times: until, held (7 bytes each)   lent, generation (7)     loans      logs and buckets
//!  `------------- all that deciding a request reads -------------'
//!
//!  loans: how many (1), 0 (6), 255   then of each its region (8), the loan, and of logs and buckets
//!                                    the answer that was taken last, plus 1 (8); 0: unknown
//! ```
//!
//! A region stands with its number, so its loan is found whichever other regions there are. One that has left keeps its loan
//! until nothing of it counts any more. Builds before this wrote a number of all names together, below 2^56, in the place of
//! how many there are, and the loans of all regions in the order of their names. They read nothing else.
//!
//! The share in a window is what is owned, less what is lent, and what is held, of the last entry that begins by then. The
//! share in a log and a bucket is what is owned, less what is lent, and what is held until later than now, in the
//! generation that the store is in; earlier ends come first. What is owned is not kept: it comes from the rules, so that a
//! new limit counts at once. All numbers are little-endian.

mod timed;

use super::{LentPiece, WindowAnswer, WindowHeld, WindowLent, WindowLoan, WindowLoans};
use crate::region::fnv;
use crate::{MAX_COUNT, Region, RegionId};

/// The version of the format for fixed windows.
const VERSION: u8 = 1;

/// The most entries of shares, and the most pieces of a loan.
const ENTRIES_MAX: usize = 255;

/// The bytes of a number in an entry of shares.
const SHORT: usize = 7;

/// The largest number in an entry of shares: one that a script can hold.
const SHORT_MAX: u64 = (1 << 53) - 1;

/// The last of the eight bytes that say how many loans there are.
const BY_REGION: u8 = 0xff;

/// The regions between which loans are made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoanRegions {
    /// In the order of their names, as loans are.
    ids: Vec<RegionId>,
    /// The number of all names together, by which builds before this found their loans.
    names: u64,
}

impl LoanRegions {
    /// The regions of these names, in that order.
    #[must_use]
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<&str> = names.into_iter().collect();
        let bytes = names.iter().flat_map(|name| name.bytes().chain([0]));
        Self {
            names: fnv(bytes) & MAX_COUNT,
            ids: names.iter().map(|name| RegionId::of(name)).collect(),
        }
    }

    /// Those of `regions`.
    #[must_use]
    pub fn of(regions: &[Region]) -> Self {
        Self::named(regions.iter().map(|region| &*region.name))
    }

    /// The number of them.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.ids.len()
    }

    /// The regions whose loans `peers` of them are, the last ones with those that have `left`.
    pub fn with<'a>(&'a self, left: &'a [RegionId]) -> impl Iterator<Item = RegionId> + 'a {
        self.ids.iter().chain(left).copied()
    }

    /// Takes the loans of these regions out of `loans`, each `none` if it is not there; then those that have left.
    fn place<T: Clone>(&self, loans: Vec<(RegionId, T)>, none: &T) -> (Vec<T>, Vec<RegionId>) {
        let mut peers = vec![none.clone(); self.count()];
        let mut left = Vec::new();
        for (region, loan) in loans {
            match self.ids.iter().position(|id| *id == region) {
                Some(place) => peers[place] = loan,
                None => {
                    peers.push(loan);
                    left.push(region);
                }
            }
        }
        (peers, left)
    }
}

impl WindowLoans {
    /// Encodes the loans, from `window` on, between `regions`; [`None`] if there are too many, or too large ones.
    #[must_use]
    pub fn encode(&self, window: u64, regions: &LoanRegions) -> Option<Vec<u8>> {
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
        let loans = regions.with(&self.left).zip(&self.peers).enumerate();
        let kept = loans.filter(|(place, (_, loan))| match *place < regions.count() {
            true => **loan != WindowLoan::default(),
            false => loan.counts_from(window),
        });
        let kept: Vec<_> = kept.map(|(_, loan)| loan).collect();
        put_count(&mut out, kept.len())?;
        for (region, loan) in kept {
            put(&mut out, [region.get()]);
            loan.encode(&mut out)?;
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

    /// Reads what was encoded, in one of `regions` that owns `owns`; [`None`] if it is something else, or if a build before
    /// this encoded it for other regions.
    #[must_use]
    pub fn decode(bytes: &[u8], owns: u64, regions: &LoanRegions) -> Option<Self> {
        let mut bytes = Reader(bytes);
        (bytes.byte()? == VERSION).then_some(())?;
        let entries = usize::from(bytes.byte()?);
        bytes.take(entries * 3 * SHORT)?;
        let (peers, left) = match bytes.count(regions)? {
            Some(count) => {
                let loans = (0..count).map(|_| {
                    let region = RegionId::from_bits(bytes.number()?);
                    Some((region, WindowLoan::decode(&mut bytes)?))
                });
                let loans = loans.collect::<Option<_>>()?;
                regions.place(loans, &WindowLoan::default())
            }
            None => {
                let peers = (0..regions.count()).map(|_| WindowLoan::decode(&mut bytes));
                (peers.collect::<Option<_>>()?, Vec::new())
            }
        };
        bytes.0.is_empty().then_some(Self {
            owns,
            grows: None,
            peers,
            left,
        })
    }
}

impl WindowLoan {
    /// True if it moves hits in `window` or a later one.
    fn counts_from(&self, window: u64) -> bool {
        let held = &self.held;
        let holds = held.now > 0 && window <= held.first || held.next > 0 && window <= held.last;
        let mut pieces = self.lent.pieces.iter();
        holds || pieces.any(|piece| piece.amount > 0 && window <= piece.last)
    }

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

/// Says how many loans follow; [`None`] if they are too many.
fn put_count(out: &mut Vec<u8>, count: usize) -> Option<()> {
    out.push(u8::try_from(count).ok()?);
    out.extend_from_slice(&[0, 0, 0, 0, 0, 0, BY_REGION]);
    Some(())
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// The number of loans that follow, each with its region; inner [`None`] if they are those of all `regions`, in their order.
    fn count(&mut self, regions: &LoanRegions) -> Option<Option<u8>> {
        let bytes: [u8; 8] = self.take(8)?.try_into().ok()?;
        match bytes {
            [count, 0, 0, 0, 0, 0, 0, BY_REGION] => Some(Some(count)),
            names => (u64::from_le_bytes(names) == regions.names).then_some(None),
        }
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

    pub(super) fn two() -> LoanRegions {
        LoanRegions::named(["ap", "eu"])
    }

    pub(super) fn three() -> LoanRegions {
        LoanRegions::named(["ap", "eu", "us"])
    }

    pub(super) fn four() -> LoanRegions {
        LoanRegions::named(["aa", "ap", "eu", "us"])
    }

    /// The bytes that builds before this wrote of [three] regions, for loans that now are `bytes`.
    pub(super) fn written_before<T>(
        bytes: &[u8],
        peers: &[T],
        encode: impl Fn(&T, &mut Vec<u8>),
    ) -> Vec<u8> {
        let count = [0, 0, 0, 0, 0, 0, BY_REGION];
        let mut at = bytes.windows(7).position(|it| *it == count);
        let mut out = bytes[..at.take().expect("loans are counted") - 1].to_vec();
        put(&mut out, [three().names]);
        peers.iter().for_each(|peer| encode(peer, &mut out));
        out
    }

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
            let bytes = loans.encode(1_000, &three()).expect("they fit");
            for window in 1_000..1_020 {
                assert_eq!(share(&bytes, 300, window), loans.share(window), "{window}");
            }
            let read = WindowLoans::decode(&bytes, 300, &three());
            assert_eq!(read, Some(loans.clone()));
            for cut in 0..bytes.len() {
                assert_eq!(WindowLoans::decode(&bytes[..cut], 300, &three()), None);
            }
            let before = written_before(&bytes, &loans.peers, |loan, out| {
                loan.encode(out).expect("it fits");
            });
            assert_eq!(WindowLoans::decode(&before, 300, &three()), Some(loans));
            assert_eq!(WindowLoans::decode(&before, 300, &four()), None);
        }
    }

    #[test]
    fn loans_are_those_of_their_regions_whichever_others_there_are() {
        let mut loans = WindowLoans::new(300, 3);
        loans.peers[0].asked = 7;
        loans.peers[2].lent = WindowLent {
            number: 9,
            pieces: vec![LentPiece {
                first: 1_000,
                last: 1_005,
                amount: 45,
            }],
        };
        let bytes = loans.encode(1_000, &three()).expect("they fit");
        let more = WindowLoans::decode(&bytes, 300, &four()).expect("they are ours");
        assert_eq!(more.peers[1], loans.peers[0]);
        assert_eq!(more.peers[3], loans.peers[2]);
        assert_eq!((more.peers.len(), more.share(1_000)), (4, 255));
        let again = more.encode(1_000, &four()).expect("they fit");
        assert_eq!(WindowLoans::decode(&again, 300, &three()), Some(loans));
        // The borrower leaves: its loan counts until its last window is over.
        let less = WindowLoans::decode(&bytes, 300, &two()).expect("they are ours");
        assert_eq!((less.peers.len(), less.share(1_005)), (3, 255));
        assert_eq!(less.left, [RegionId::of("us")]);
        let of = |window| {
            let bytes = less.encode(window, &two()).expect("they fit");
            WindowLoans::decode(&bytes, 300, &two()).expect("they are ours")
        };
        assert_eq!(of(1_005), less);
        assert_eq!((of(1_006).left.len(), of(1_006).peers.len()), (0, 2));
    }
}
