//! The thread that writes the access log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tracing::{error, info};

/// The interval between checks whether the file was moved away.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The bytes written at a time.
const PIECE: usize = 64 << 10;

/// A writer of lines as they come.
pub(super) struct Writer {
    to: To,
    dropped: Arc<AtomicU64>,
    is_failing: bool,
}

enum To {
    Stdout,
    File { path: PathBuf, file: File },
}

impl Writer {
    pub(super) fn open(path: Option<&Path>, dropped: Arc<AtomicU64>) -> io::Result<Self> {
        let to = match path {
            None => To::Stdout,
            Some(path) => To::File {
                path: path.to_path_buf(),
                file: append(path)?,
            },
        };
        Ok(Self {
            to,
            dropped,
            is_failing: false,
        })
    }

    /// Writes until all senders are gone.
    pub(super) fn run(&mut self, waiting: &Receiver<String>) {
        let mut looked = Instant::now();
        let mut piece = Vec::with_capacity(PIECE);
        loop {
            let mut torn = piece.len();
            match waiting.recv_timeout(LOOK_EVERY) {
                Ok(line) => piece.extend_from_slice(line.as_bytes()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.put(&mut piece, torn > 0),
            }
            while piece.len() < PIECE
                && let Ok(line) = waiting.try_recv()
            {
                piece.extend_from_slice(line.as_bytes());
            }
            if looked.elapsed() >= LOOK_EVERY {
                if self.to.follow() && torn > 0 {
                    piece.drain(..torn);
                    torn = 0;
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                }
                looked = Instant::now();
            }
            self.put(&mut piece, torn > 0);
        }
    }

    /// Writes whole lines, of which the first may be begun already. Of what cannot be written, `piece` keeps the rest of a
    /// line that was begun, to be written next.
    fn put(&mut self, piece: &mut Vec<u8>, is_begun: bool) {
        if piece.is_empty() {
            return;
        }
        match self.to.write(piece, is_begun) {
            Ok(()) => {
                if std::mem::take(&mut self.is_failing) {
                    info!("the access log is written again");
                }
            }
            Err((error, dropped)) => {
                self.dropped.fetch_add(dropped, Ordering::Relaxed);
                if !std::mem::replace(&mut self.is_failing, true) {
                    error!(%error, "the access log cannot be written; lines are dropped");
                }
            }
        }
    }
}

impl To {
    /// Writes all of `piece`, or returns the number of lines that are lost.
    fn write(&mut self, piece: &mut Vec<u8>, is_begun: bool) -> Result<(), (io::Error, u64)> {
        match self {
            To::Stdout => write_lines(&mut io::stdout().lock(), piece, is_begun),
            To::File { file, .. } => write_lines(file, piece, is_begun),
        }
    }

    /// Reopens the file if another one, or none, is in its place: that is how logs are rotated. Returns true if it did.
    fn follow(&mut self) -> bool {
        let Self::File { path, file } = self else {
            return false;
        };
        let id = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        let (here, there) = (
            file.metadata().map(id).ok(),
            std::fs::metadata(&*path).map(id).ok(),
        );
        // While the new one cannot be opened, lines go on to the old one.
        let fresh = (here != there).then(|| append(path));
        let Some(Ok(fresh)) = fresh else { return false };
        *file = fresh;
        true
    }
}

/// Writes `piece`, the first line of which may be begun already, and empties it. If that fails within a line, the rest of
/// this line stays in it, so that no line is torn; with the error comes the number of lines that are lost.
fn write_lines(
    to: &mut impl Write,
    piece: &mut Vec<u8>,
    is_begun: bool,
) -> Result<(), (io::Error, u64)> {
    let (written, outcome) = write_some(to, piece);
    let is_within = match written {
        0 => is_begun,
        _ => piece[written - 1] != b'\n',
    };
    let mut lines = piece[written..].split_inclusive(|byte| *byte == b'\n');
    let rest = if is_within { lines.next() } else { None };
    let rest = rest.unwrap_or_default().to_vec();
    let lost = lines.count() as u64;
    piece.clear();
    piece.extend(rest);
    outcome.map_err(|error| (error, lost))
}

/// Writes as much of `bytes` as it can; returns how many these were.
fn write_some(to: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match to.write(&bytes[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, to.flush())
}

/// Opens a file to append to. Only its owner and group may read a new one: it tells who requested what.
fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o640).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with room for so many bytes.
    struct Disk {
        room: usize,
        written: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room);
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= taken;
            self.written.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_tears_no_line() {
        let mut disk = Disk {
            room: 6,
            written: Vec::new(),
        };
        let mut piece = b"one\nt\xc3\xbc wo\nthree\nfour\n".to_vec();
        let (_, lost) = write_lines(&mut disk, &mut piece, false).unwrap_err();
        assert_eq!(lost, 2, "three and four");
        // It stays full for a while, and makes room for a part of the rest.
        for room in [0, 1, 0] {
            disk.room = room;
            piece.extend_from_slice(b"five\n");
            let (_, lost) = write_lines(&mut disk, &mut piece, true).unwrap_err();
            assert_eq!(lost, 1, "five");
        }
        disk.room = 100;
        piece.extend_from_slice(b"six\n");
        write_lines(&mut disk, &mut piece, true).unwrap();
        assert_eq!(disk.written, "one\ntü wo\nsix\n".as_bytes());
        assert!(piece.is_empty());
    }

    #[test]
    fn a_disk_that_is_full_between_lines_loses_whole_ones() {
        let mut disk = Disk {
            room: 4,
            written: Vec::new(),
        };
        let mut piece = b"one\ntwo\n".to_vec();
        let (_, lost) = write_lines(&mut disk, &mut piece, false).unwrap_err();
        assert_eq!(lost, 1);
        assert!(piece.is_empty());
    }
}
