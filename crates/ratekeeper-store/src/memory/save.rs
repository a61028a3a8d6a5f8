//! Saves the counters that outlive a restart, and the records of idempotent requests.
//!
//! The records are saved after the counters. So there is a record of whatever request a saved counter was charged for, and
//! a repeat is not charged again. After a crash there can be records of requests whose charges were lost, as all are that
//! came after their counter was saved.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ratekeeper_core::Timestamp;
use ratekeeper_core::formats::STATE_FILE;

use super::MemoryStore;
use super::once::Records;
use super::state_file::{HEADER_BYTES_MAX, MAGIC, Saved as State, checksum, encode};

/// Buckets copied under one lock, which takes some ten microseconds.
const BUCKETS_PER_LOCK: usize = 128;

/// The size from which a block is written.
const BLOCK_BYTES: usize = 1 << 20;

/// The result of saving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Saved {
    /// Live counters with windows of a minute or more, or that count for another minute.
    pub counters: u64,
    /// Records of idempotent requests.
    pub records: u64,
    /// Bytes written.
    pub bytes: u64,
}

impl MemoryStore {
    /// Writes the counters that are alive at `now` and whose windows are a minute or longer, or that are alive for
    /// another minute, the live records of idempotent requests, and `header`, the caller's own data (at most 1 MiB), such as the hash key of the counters'
    /// names, and the slots of the rules.
    ///
    /// Decisions go on meanwhile: a lock is held for a few microseconds at a time, so counters are
    /// saved as of slightly different times. If the table grows at that moment, counters move to a
    /// later part of it: none is missed, and some are in the file twice, of which loading uses the
    /// first.
    ///
    /// # Errors
    /// Those of `out`, and `InvalidInput` if the header is too long.
    pub fn save(&self, out: &mut impl Write, header: &[u8], now: Timestamp) -> io::Result<Saved> {
        let mut out = Counting { out, bytes: 0 };
        write_header(&mut out, header, now)?;
        let mut counters = 0;
        let mut block = Block::default();
        for shard in &self.shards {
            for from in (0..self.buckets_per_shard).step_by(BUCKETS_PER_LOCK) {
                let shard = shard.0.lock();
                let to = (from + BUCKETS_PER_LOCK).min(shard.table.buckets());
                if from >= to || shard.table.used() == 0 {
                    break;
                }
                let now = now.max(shard.now);
                (from..to).for_each(|bucket| block.add(&shard, bucket, now));
                drop(shard);
                counters += block.write_if_full(&mut out)?;
            }
        }
        counters += block.write(&mut out)?;
        write_end(&mut out, counters)?;
        let records = self.save_records(&mut out, now)?;
        out.out.flush()?;
        Ok(Saved {
            counters,
            records,
            bytes: out.bytes,
        })
    }

    /// Writes the records that are alive at `now`; returns their number.
    fn save_records(&self, out: &mut impl Write, now: Timestamp) -> io::Result<u64> {
        let mut records = 0;
        let mut block = Block::default();
        for part in 0..Records::PARTS {
            let mut last = None;
            loop {
                block.open();
                let (added, next) = self.records.encode_after(part, last, now, &mut block.bytes);
                block.entries += added;
                records += block.write_if_full(out)?;
                match next {
                    Some(next) => last = Some(next),
                    None => break,
                }
            }
        }
        records += block.write(out)?;
        write_end(out, records)?;
        Ok(records)
    }

    /// Saves to `path` atomically: after a crash at any moment there is the old file or the new
    /// one. The new one is written beside it (`path` + `.tmp`, readable by this user only), synced
    /// and renamed. For one caller at a time.
    ///
    /// # Errors
    /// Those of the file system and of [`Self::save`].
    pub fn save_file(&self, path: &Path, header: &[u8], now: Timestamp) -> io::Result<Saved> {
        let beside = beside(path);
        let result = self.write_beside(&beside, header, now);
        let saved = match result {
            Ok(saved) => saved,
            Err(error) => {
                // The disk may be full; a partial file only makes that worse.
                let _ = fs::remove_file(&beside);
                return Err(error);
            }
        };
        fs::rename(&beside, path)?;
        sync_folder(path)?;
        Ok(saved)
    }

    fn write_beside(&self, beside: &Path, header: &[u8], now: Timestamp) -> io::Result<Saved> {
        // A leftover of an earlier crash; creating a new file never follows a link.
        match fs::remove_file(beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = open_private(beside)?;
        let saved = self.save(&mut file, header, now)?;
        file.sync_all()?;
        Ok(saved)
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".tmp");
    PathBuf::from(name)
}

fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Syncs the folder, so that the rename is durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => File::open(".")?.sync_all(),
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

fn write_header(out: &mut impl Write, header: &[u8], now: Timestamp) -> io::Result<()> {
    let len = u32::try_from(header.len()).ok();
    let Some(len) = len.filter(|len| *len as usize <= HEADER_BYTES_MAX) else {
        let message = "the header of a state file is at most 1 MiB";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    };
    let mut bytes = Vec::with_capacity(header.len() + 32);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&STATE_FILE.version.to_le_bytes());
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(&now.as_micros().to_le_bytes());
    bytes.extend_from_slice(header);
    write_checked(out, &mut bytes)
}

fn write_end(out: &mut impl Write, total: u64) -> io::Result<()> {
    let mut bytes = vec![0; 8];
    bytes.extend_from_slice(&total.to_le_bytes());
    write_checked(out, &mut bytes)
}

fn write_checked(out: &mut impl Write, bytes: &mut Vec<u8>) -> io::Result<()> {
    let sum = checksum(bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    out.write_all(bytes)
}

/// Counters or records to be written, after eight bytes with their number and length.
#[derive(Default)]
struct Block {
    entries: u32,
    bytes: Vec<u8>,
}

impl Block {
    /// Begins the block, unless it is begun.
    fn open(&mut self) {
        if self.bytes.is_empty() {
            self.bytes.extend_from_slice(&[0; 8]);
        }
    }

    /// Adds the counters of a bucket that are to be saved.
    fn add(&mut self, shard: &super::Shard, bucket: usize, now: Timestamp) {
        self.open();
        for (place, meta) in shard.table.places(bucket) {
            let Some(meta) =
                meta.filter(|meta| !meta.is_expired(now) && meta.outlives_restart(now))
            else {
                continue;
            };
            let words = shard.table.state(place);
            let state = if meta.is_heap() {
                State::Heap(shard.heaps.get(words[0]))
            } else {
                State::Words(*words)
            };
            encode(&mut self.bytes, shard.table.key(place), meta, &state);
            self.entries += 1;
        }
    }

    /// Writes the block if it is large enough; returns the number of entries written.
    fn write_if_full(&mut self, out: &mut impl Write) -> io::Result<u64> {
        match self.bytes.len() >= BLOCK_BYTES {
            true => self.write(out),
            false => Ok(0),
        }
    }

    /// Writes the block, unless it is empty, and clears it.
    fn write(&mut self, out: &mut impl Write) -> io::Result<u64> {
        if self.entries == 0 {
            return Ok(0);
        }
        let len = u32::try_from(self.bytes.len() - 8)
            .map_err(|_| io::Error::other("an entry is too large to be saved"))?;
        self.bytes[..4].copy_from_slice(&self.entries.to_le_bytes());
        self.bytes[4..8].copy_from_slice(&len.to_le_bytes());
        write_checked(out, &mut self.bytes)?;
        let entries = u64::from(self.entries);
        self.entries = 0;
        self.bytes.clear();
        Ok(entries)
    }
}

/// Counts the bytes written.
struct Counting<'a, W> {
    out: &'a mut W,
    bytes: u64,
}

impl<W: Write> Write for Counting<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
