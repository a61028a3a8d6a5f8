//! The file of a Unix socket, which is created and removed with the socket.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

/// The longest time an existing listener on the file may take to accept us.
const PATIENCE: Duration = Duration::from_secs(1);

/// A socket's file. Dropping it, after the socket, removes it, unless another process listens on it
/// by then.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    id: Option<(u64, u64)>,
}

impl SocketFile {
    /// Listens on `path`. A socket without a listener is replaced.
    ///
    /// # Errors
    /// Somebody listens there, something else lies there, or the system refuses.
    pub(super) async fn bind(path: &Path, mode: Option<u32>) -> io::Result<(UnixListener, Self)> {
        make_room(path).await?;
        let socket = UnixListener::bind(path)?;
        let file = Self {
            path: path.to_owned(),
            id: fs::symlink_metadata(path).ok().map(|found| id(&found)),
        };
        if let Some(mode) = mode {
            fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        Ok((socket, file))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let there = fs::symlink_metadata(&self.path).ok();
        let is_ours = there.is_some_and(|found| Some(id(&found)) == self.id);
        // Once we stop listening, the next process may replace the file with its own, and some
        // file systems give that the very same number. Then somebody listens there.
        if is_ours && StdUnixStream::connect(&self.path).is_err() {
            // If it cannot be removed, the next process finds it without a listener.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The identity of a file, whatever its name.
fn id(file: &fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Removes the file of a process that did not exit cleanly.
async fn make_room(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        let message = "a file that is not a socket lies there; remove it, or choose another path";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    match timeout(PATIENCE, UnixStream::connect(path)).await {
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        // Somebody else removed it.
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        // Connected, or its queue is full: somebody is there.
        _ => {
            let message = "another process listens there";
            Err(io::Error::new(io::ErrorKind::AddrInUse, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary folder")
    }

    #[tokio::test]
    async fn the_file_goes_with_the_socket() {
        let folder = folder();
        let path = folder.path().join("a.sock");
        let (socket, file) = SocketFile::bind(&path, Some(0o660)).await.expect("free");
        let found = fs::metadata(&path).expect("it is there");
        assert_eq!(found.permissions().mode() & 0o777, 0o660);
        drop((socket, file));
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_stale_file_is_replaced_and_a_live_one_is_not() {
        let folder = folder();
        let path = folder.path().join("a.sock");
        // The standard library's listener leaves its file behind.
        drop(std::os::unix::net::UnixListener::bind(&path).expect("free"));
        assert!(path.exists());
        let (_socket, _file) = SocketFile::bind(&path, None)
            .await
            .expect("there is no other listener");
        let error = SocketFile::bind(&path, None).await.expect_err("we listen");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists());
    }

    #[tokio::test]
    async fn another_file_is_left_alone() {
        let folder = folder();
        let path = folder.path().join("a.sock");
        fs::write(&path, "precious").expect("written");
        let error = SocketFile::bind(&path, None).await.expect_err("no socket");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).expect("there"), "precious");
    }

    #[tokio::test]
    async fn the_file_of_a_successor_is_left_alone() {
        let folder = folder();
        let path = folder.path().join("a.sock");
        let (socket, old) = SocketFile::bind(&path, None).await.expect("free");
        drop(socket);
        let (_socket, _new) = SocketFile::bind(&path, None).await.expect("stale");
        drop(old);
        assert!(path.exists());
    }
}
