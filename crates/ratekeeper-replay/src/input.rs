//! Reads logs line by line from a file or standard input, plain or gzip, with at most one line in
//! memory.

mod compression;
mod gzip;

use std::fs::File;
use std::io::{self, BufReader, Chain, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gzip::Gunzip;

/// The longest line accepted, in bytes. A longer one is malformed; it is skipped without being
/// stored.
pub const LINE_BYTES_MAX: usize = 1 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The source of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Log {
    /// A file.
    File(PathBuf),
    /// Standard input.
    Stdin,
}

impl Log {
    /// The log for a command-line argument: `-` is standard input, anything else a path.
    #[must_use]
    pub fn from_arg(arg: &Path) -> Self {
        if arg.as_os_str() == "-" {
            Self::Stdin
        } else {
            Self::File(arg.to_owned())
        }
    }

    /// The name for messages.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Stdin => "standard input".to_owned(),
        }
    }

    /// True for files, and false for standard input, pipes and devices, whose bytes are gone once they are read.
    pub(crate) fn can_be_read_again(&self) -> bool {
        match self {
            // One that is not there can be opened as often as you like, to the same error.
            Self::File(path) => {
                std::fs::metadata(path).map_or(true, |meta| meta.is_file() || meta.is_dir())
            }
            Self::Stdin => false,
        }
    }

    /// The size in bytes if it is known.
    pub(crate) fn size(&self) -> Option<u64> {
        match self {
            Self::File(path) => {
                let meta = std::fs::metadata(path).ok()?;
                meta.is_file().then_some(meta.len())
            }
            Self::Stdin => None,
        }
    }

    /// Opens it; returns the size in bytes if it is known.
    pub(crate) fn open(&self) -> io::Result<(Box<dyn Read>, Option<u64>)> {
        match self {
            Self::File(path) => {
                let file = File::open(path)?;
                let meta = file.metadata()?;
                if meta.is_dir() {
                    return Err(io::Error::from(io::ErrorKind::IsADirectory));
                }
                // A pipe or a device has no size by which to measure progress.
                let size = meta.is_file().then_some(meta.len());
                Ok((Box::new(file), size))
            }
            Self::Stdin => Ok((Box::new(io::stdin()), None)),
        }
    }
}

/// A line, without its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Line<'a> {
    Whole(&'a [u8]),
    /// The start of a line longer than [`LINE_BYTES_MAX`].
    TooLong(&'a [u8]),
}

/// The lines of a log, decompressed if it starts with gzip's magic bytes.
pub(crate) struct Lines {
    input: Input,
    read: Arc<AtomicU64>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    at_end: bool,
    /// True if the line at `start` was too long and has been returned; the rest of it is to be
    /// dropped.
    skipping: bool,
}

impl Lines {
    /// Bytes per read: large enough to make the cost of system calls negligible.
    const CHUNK: usize = 256 << 10;

    pub(crate) fn new(source: impl Read + 'static) -> io::Result<Self> {
        let read = Arc::new(AtomicU64::new(0));
        let input = Input::open(Box::new(Counted {
            source,
            read: Arc::clone(&read),
        }))?;
        let buffer = vec![0; LINE_BYTES_MAX + Self::CHUNK];
        Ok(Self {
            input,
            read,
            buffer,
            start: 0,
            end: 0,
            at_end: false,
            skipping: false,
        })
    }

    /// Bytes read from the source, before decompression.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// True if gzip was followed by something else, which was left out.
    pub(crate) fn has_garbage(&self) -> bool {
        matches!(&self.input, Input::Gzip(source) if source.has_garbage())
    }

    /// The next line; none at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut searched = self.start;
        loop {
            match memchr::memchr(b'\n', &self.buffer[searched..self.end]) {
                Some(at) => {
                    let (from, to) = (self.start, searched + at);
                    self.start = to + 1;
                    if !std::mem::take(&mut self.skipping) {
                        return Ok(Some(self.line(from, to)));
                    }
                    searched = self.start;
                }
                None if self.at_end => return Ok(self.last()),
                None if self.end - self.start > LINE_BYTES_MAX || self.skipping => {
                    let (from, to) = (self.start, self.end);
                    self.start = self.end;
                    if !std::mem::replace(&mut self.skipping, true) {
                        return Ok(Some(self.line(from, to)));
                    }
                    self.fill()?;
                    searched = self.start;
                }
                None => {
                    let done = self.end - self.start;
                    self.fill()?;
                    searched = self.start + done;
                }
            }
        }
    }

    /// The text after the last line end.
    fn last(&mut self) -> Option<Line<'_>> {
        let (from, to) = (self.start, self.end);
        self.start = to;
        let is_rest = std::mem::take(&mut self.skipping);
        (from < to && !is_rest).then(|| self.line(from, to))
    }

    fn line(&self, from: usize, to: usize) -> Line<'_> {
        let line = &self.buffer[from..to];
        match line.get(..LINE_BYTES_MAX) {
            Some(clipped) if line.len() > LINE_BYTES_MAX => Line::TooLong(clipped),
            _ => {
                // One begins each of several files that were joined.
                let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
                Line::Whole(line.strip_suffix(b"\r").unwrap_or(line))
            }
        }
    }

    /// Moves the unread bytes to the front and reads more behind them.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let room = &mut self.buffer[self.end..];
        let chunk = room.len().min(Self::CHUNK);
        loop {
            match self.input.read(&mut room[..chunk]) {
                Ok(count) => {
                    self.at_end = count == 0;
                    self.end += count;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// A source whose first bytes were read and put back.
type Peeked = Chain<Cursor<Vec<u8>>, Box<dyn Read>>;

enum Input {
    Plain(Peeked),
    Gzip(Box<Gunzip<BufReader<Peeked>>>),
}

impl Input {
    /// Detects gzip by the first bytes, not by a name: standard input has none.
    fn open(mut source: Box<dyn Read>) -> io::Result<Self> {
        let mut first = Vec::with_capacity(compression::FIRST_BYTES);
        let most = compression::FIRST_BYTES as u64;
        source.by_ref().take(most).read_to_end(&mut first)?;
        compression::refuse(&first)?;
        let is_gzip = first.starts_with(&gzip::MAGIC);
        let peeked = Cursor::new(first).chain(source);
        Ok(if is_gzip {
            let buffered = BufReader::with_capacity(64 << 10, peeked);
            Self::Gzip(Box::new(Gunzip::new(buffered)))
        } else {
            Self::Plain(peeked)
        })
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(source) => source.read(buffer),
            Self::Gzip(source) => source.read(buffer),
        }
    }
}

/// Counts the bytes read; the counter is shared because a decoder owns the source.
struct Counted<R> {
    source: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        // Relaxed: only the reading thread looks at it.
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
