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
        let mut piece = String::with_capacity(PIECE);
        loop {
            let mut lines = 0;
            match waiting.recv_timeout(LOOK_EVERY) {
                Ok(line) => {
                    piece.push_str(&line);
                    lines += 1;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while piece.len() < PIECE
                && let Ok(line) = waiting.try_recv()
            {
                piece.push_str(&line);
                lines += 1;
            }
            if looked.elapsed() >= LOOK_EVERY {
                self.to.follow();
                looked = Instant::now();
            }
            self.put(&piece, lines);
            piece.clear();
        }
    }

    fn put(&mut self, piece: &str, lines: u64) {
        let written = match &mut self.to {
            To::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout
                    .write_all(piece.as_bytes())
                    .and_then(|()| stdout.flush())
            }
            To::File { file, .. } => file.write_all(piece.as_bytes()),
        };
        match written {
            Ok(()) if piece.is_empty() => {}
            Ok(()) => {
                if std::mem::take(&mut self.is_failing) {
                    info!("the access log is written again");
                }
            }
            Err(error) => {
                self.dropped.fetch_add(lines, Ordering::Relaxed);
                if !std::mem::replace(&mut self.is_failing, true) {
                    error!(%error, "the access log cannot be written; lines are dropped");
                }
            }
        }
    }
}

impl To {
    /// Reopens the file if another one, or none, is in its place: that is how logs are rotated.
    fn follow(&mut self) {
        let Self::File { path, file } = self else {
            return;
        };
        let id = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        let (here, there) = (
            file.metadata().map(id).ok(),
            std::fs::metadata(&*path).map(id).ok(),
        );
        // While the new one cannot be opened, lines go on to the old one.
        if here != there
            && let Ok(fresh) = append(path)
        {
            *file = fresh;
        }
    }
}

/// Opens a file to append to. Only its owner and group may read a new one: it tells who requested what.
fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o640).open(path)
}
