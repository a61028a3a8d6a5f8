//! Loads a state file that an earlier process saved.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use ratekeeper_core::formats::{OtherVersion, STATE_FILE};
use ratekeeper_core::{Heap, Micros, Timestamp};

use super::MemoryStore;
use super::heap::OVERHEAD_BYTES;
use super::meta::Meta;
use super::once::Record;
use super::shard::NO_RULE;
use super::state_file::{
    FIXED_BYTES, HEADER_BYTES_MAX, MAGIC, Restored, Saved as State, WITHOUT_RECORDS, WITHOUT_RULES,
    Words, checksum,
};
use super::table::Probe;
use crate::CounterKey;

/// The most by which the clock of the saving process may have been ahead. It was if the machine's clock was set back
/// meanwhile: a running process follows that slowly.
const AHEAD_MAX: Micros = Micros::from_secs(3_600);

/// Buckets cleared under one lock, which takes some ten microseconds.
const BUCKETS_PER_LOCK: usize = 128;

/// The result of loading a state file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadedState {
    /// The header given when it was saved.
    pub header: Vec<u8>,
    /// The time at which it was saved, up to an hour after the time of loading. Windows are those of this time:
    /// requests must not be decided at an earlier one.
    pub saved_at: Timestamp,
    /// True if the counters belong to the rules whose slots they were saved with; an earlier version did not tell.
    pub has_rules: bool,
    /// Counters that are still alive.
    pub counters: u64,
    /// Counters that have expired since.
    pub expired: u64,
    /// Counters without room here, because this store is smaller than the one that saved them.
    pub dropped: u64,
    /// Records of idempotent requests that are still alive.
    pub records: u64,
    /// Records without room here: repeats of those requests are carried out again.
    pub records_dropped: u64,
}

/// The reason why a state file was refused. Nothing was loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateFileError {
    /// The file cannot be read.
    #[error("the state file cannot be read")]
    Io(#[from] io::Error),
    /// The file is not a state file.
    #[error("this is not a state file of ratekeeper")]
    NotAStateFile,
    /// It was written by another version.
    #[error(transparent)]
    Version(#[from] OtherVersion),
    /// It was saved more than an hour in the future, by a clock that was wrong then or is wrong now. Its windows
    /// would deny until that time.
    #[error("the state file was saved {0} seconds in the future: a clock is wrong")]
    FromTheFuture(u64),
    /// It ends early.
    #[error("the state file is truncated")]
    Truncated,
    /// It has changed since it was written.
    #[error("the state file is damaged: a checksum or a length is wrong")]
    Corrupt,
}

impl MemoryStore {
    /// Loads the file that [`save`](Self::save) wrote, as of `now`. The file is read twice: to
    /// verify all of it, then to load it. Counters and records that already exist stay as they are.
    ///
    /// The loaded counters belong to the rules whose slots they were saved with, so the rules must have those slots again;
    /// from a file of an earlier version, to no rule until they are first used.
    ///
    /// # Errors
    /// [`StateFileError`]; nothing was loaded.
    pub fn load(
        &self,
        input: &mut (impl Read + Seek),
        now: Timestamp,
    ) -> Result<LoadedState, StateFileError> {
        let (mut loaded, version) = read_header(input)?;
        let ahead = loaded.saved_at.since(now);
        if ahead > AHEAD_MAX {
            return Err(StateFileError::FromTheFuture(ahead.as_secs_ceil()));
        }
        let now = now.max(loaded.saved_at);
        // Requests that were carried out after the file was saved have no record in it.
        self.records.begin(now);
        let blocks_at = input.stream_position()?;
        read_counters(input, |_, _, _| {})?;
        read_records(input, version != WITHOUT_RECORDS, |_, _| {})?;
        input.seek(SeekFrom::Start(blocks_at))?;
        let result = self.load_blocks(input, version, now, &mut loaded);
        if let Err(error) = result {
            // The file was whole a moment ago: somebody writes to it, or the disk fails.
            self.clear();
            return Err(error);
        }
        Ok(loaded)
    }

    /// Loads the file at `path`.
    ///
    /// # Errors
    /// Those of [`Self::load`]; a file that does not exist is [`StateFileError::Io`].
    pub fn load_file(&self, path: &Path, now: Timestamp) -> Result<LoadedState, StateFileError> {
        self.load(&mut File::open(path)?, now)
    }

    fn load_blocks(
        &self,
        input: &mut impl Read,
        version: u32,
        now: Timestamp,
        loaded: &mut LoadedState,
    ) -> Result<(), StateFileError> {
        read_counters(input, |key, meta, state| {
            let meta = match loaded.has_rules {
                true => meta,
                false => meta.with_rule(NO_RULE),
            };
            let count = match self.put(key, meta, state, now) {
                Restored::Alive => &mut loaded.counters,
                Restored::Expired => &mut loaded.expired,
                Restored::NoRoom => &mut loaded.dropped,
            };
            *count += 1;
        })?;
        read_records(input, version != WITHOUT_RECORDS, |id, record| {
            match self.records.restore(id, record, now) {
                Restored::Alive => loaded.records += 1,
                Restored::Expired => {}
                Restored::NoRoom => loaded.records_dropped += 1,
            }
        })
    }

    /// Removes every counter and every record; returns the number of counters.
    ///
    /// Decisions go on meanwhile, since a lock is held for a few microseconds at a time: what they count stays or is removed.
    pub fn clear(&self) -> u64 {
        // Before the counters: who repeats a request whose charge is removed is charged again.
        self.records.clear();
        let mut removed = 0;
        for cell in &self.shards {
            for from in (0..self.buckets_per_shard).step_by(BUCKETS_PER_LOCK) {
                let shard = &mut *cell.0.lock();
                // If the table grows meanwhile, counters move to a later part of it: none is missed.
                let to = (from + BUCKETS_PER_LOCK).min(shard.table.buckets());
                if from >= to || shard.table.used() == 0 {
                    break;
                }
                removed += shard.clear(from..to, &self.budget);
            }
        }
        removed
    }

    fn put(&self, key: CounterKey, meta: Meta, state: State<'_>, now: Timestamp) -> Restored {
        if meta.is_expired(now) {
            return Restored::Expired;
        }
        let probe = Probe::new(key);
        let shard = &mut *self.shards[probe.shard_bits()].0.lock();
        if shard.table.find(probe).is_some() {
            return Restored::Alive;
        }
        let Some(place) = shard.table.free_place(probe) else {
            return Restored::NoRoom;
        };
        let words = match state {
            State::Words(words) => words,
            State::Heap(heap) => {
                if !self.budget.reserve(OVERHEAD_BYTES + size_of_val(heap)) {
                    return Restored::NoRoom;
                }
                [shard.heaps.insert(Heap::from(heap)), 0, 0, 0]
            }
        };
        shard.adopt(place, probe, meta);
        *shard.table.state_mut(place) = words;
        shard.grow(&self.budget);
        Restored::Alive
    }
}

/// The header, and the version of the file.
fn read_header(input: &mut impl Read) -> Result<(LoadedState, u32), StateFileError> {
    let mut bytes = read(input, FIXED_BYTES).map_err(|error| match error {
        StateFileError::Truncated => StateFileError::NotAStateFile,
        error => error,
    })?;
    if !bytes.starts_with(&MAGIC) {
        return Err(StateFileError::NotAStateFile);
    }
    let version = u32_at(&bytes, 8);
    if ![WITHOUT_RECORDS, WITHOUT_RULES].contains(&version) {
        STATE_FILE.check(version)?;
    }
    let len = u32_at(&bytes, 12) as usize;
    if len > HEADER_BYTES_MAX {
        return Err(StateFileError::Corrupt);
    }
    let saved_at = Timestamp::from_micros(u64_at(&bytes, 16));
    bytes.extend(read(input, len)?);
    check(input, &bytes)?;
    let loaded = LoadedState {
        header: bytes.split_off(FIXED_BYTES),
        saved_at,
        has_rules: version > WITHOUT_RULES,
        counters: 0,
        expired: 0,
        dropped: 0,
        records: 0,
        records_dropped: 0,
    };
    Ok((loaded, version))
}

fn read_counters(
    input: &mut impl Read,
    mut each: impl FnMut(CounterKey, Meta, State<'_>),
) -> Result<(), StateFileError> {
    let mut heap = Vec::new();
    read_blocks(input, |words| {
        let (key, meta, state) = words.counter(&mut heap)?;
        each(key, meta, state);
        Some(())
    })
}

/// Reads the records, where the file has any, and verifies that nothing follows.
fn read_records(
    input: &mut impl Read,
    has_records: bool,
    mut each: impl FnMut(u128, Record),
) -> Result<(), StateFileError> {
    if has_records {
        read_blocks(input, |words| {
            let (id, record) = Record::decode(words)?;
            each(id, record);
            Some(())
        })?;
    }
    match at_end(input)? {
        true => Ok(()),
        false => Err(StateFileError::Corrupt),
    }
}

/// Reads blocks up to their end, and verifies each before it passes its words on: once for each
/// entry, of which `each` takes the words, or none if it is damaged.
fn read_blocks(
    input: &mut impl Read,
    mut each: impl FnMut(&mut Words<'_>) -> Option<()>,
) -> Result<(), StateFileError> {
    let mut total = 0_u64;
    loop {
        let mut bytes = read(input, 8)?;
        let (entries, len) = (u32_at(&bytes, 0), u32_at(&bytes, 4) as usize);
        if len == 0 {
            bytes.extend(read(input, 8)?);
            check(input, &bytes)?;
            return match entries == 0 && u64_at(&bytes, 8) == total {
                true => Ok(()),
                false => Err(StateFileError::Corrupt),
            };
        }
        bytes.extend(read(input, len)?);
        check(input, &bytes)?;
        let mut words = Words::of(&bytes[8..]).ok_or(StateFileError::Corrupt)?;
        for _ in 0..entries {
            each(&mut words).ok_or(StateFileError::Corrupt)?;
        }
        if !words.is_empty() {
            return Err(StateFileError::Corrupt);
        }
        total += u64::from(entries);
    }
}

/// Reads `len` bytes; memory grows with the data received, so a damaged length does no harm.
fn read(input: &mut impl Read, len: usize) -> Result<Vec<u8>, StateFileError> {
    let mut bytes = Vec::new();
    input.take(len as u64).read_to_end(&mut bytes)?;
    if bytes.len() < len {
        return Err(StateFileError::Truncated);
    }
    Ok(bytes)
}

/// Reads and verifies the checksum of `bytes`.
fn check(input: &mut impl Read, bytes: &[u8]) -> Result<(), StateFileError> {
    let sum = u64_at(&read(input, 8)?, 0);
    if sum == checksum(bytes) {
        Ok(())
    } else {
        Err(StateFileError::Corrupt)
    }
}

fn at_end(input: &mut impl Read) -> Result<bool, StateFileError> {
    match read(input, 1) {
        Ok(_) => Ok(false),
        Err(StateFileError::Truncated) => Ok(true),
        Err(error) => Err(error),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes[at..].first_chunk().copied();
    u32::from_le_bytes(bytes.unwrap_or_default())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes[at..].first_chunk().copied();
    u64::from_le_bytes(bytes.unwrap_or_default())
}
