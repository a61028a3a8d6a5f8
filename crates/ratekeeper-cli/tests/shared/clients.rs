//! A copy of the clients for TypeScript and Python, and the programs that run them.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};

use ratekeeper_testkit::process::{output_of, tool_folder};
use ratekeeper_testkit::repository;
use tempfile::{TempDir, tempdir};

/// A copy of the clients, so that nothing is built in the repository.
pub(crate) struct Clients {
    folder: TempDir,
    typescript: Once,
}

impl Clients {
    /// The copy of all tests that run at the same time.
    pub(crate) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Clients>> = Mutex::new(Weak::new());
        // A test that failed meanwhile has left it as it was.
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let clients = Arc::new(Self::copied());
            *shared = Arc::downgrade(&clients);
            clients
        })
    }

    fn copied() -> Self {
        let folder = tempdir().expect("a folder can be made");
        let from = repository().join("clients");
        let parts = ["vectors", "typescript", "python"].map(|part| from.join(part));
        output_of(Command::new("cp").arg("-R").args(parts).arg(folder.path()));
        let packages = tool_folder("clients-node").join("node_modules");
        std::os::unix::fs::symlink(packages, folder.path().join("node_modules"))
            .expect("a link can be made");
        Self {
            folder,
            typescript: Once::new(),
        }
    }

    pub(crate) fn part(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Builds the TypeScript client, once.
    pub(crate) fn build_typescript(&self) {
        self.typescript
            .call_once(|| self.tsc("tsconfig.build.json"));
    }

    pub(crate) fn tsc(&self, project: &str) {
        let compiler = self.part("node_modules/typescript/bin/tsc");
        output_of(self.node().arg(compiler).args(["--project", project]));
    }

    pub(crate) fn node_test(&self, files: &str) {
        output_of(self.node().args(["--test", "--test-reporter=spec", files]));
    }

    /// Node, in the folder of the TypeScript client.
    pub(crate) fn node(&self) -> Command {
        let installed = node_folder().join("node");
        let node = if installed.is_file() {
            installed
        } else {
            // Where npm has none for this system, the system's own.
            PathBuf::from("node")
        };
        let mut command = Command::new(node);
        command
            .current_dir(self.part("typescript"))
            .env("RATEKEEPER", env!("CARGO_BIN_EXE_ratekeeper"));
        command
    }

    /// Python with its libraries, in the folder of the Python client.
    pub(crate) fn python(&self) -> Command {
        let libraries = tool_folder("clients-python").join("lib");
        let paths = [self.part("python/src"), libraries];
        let mut command = Command::new("python3");
        command
            .current_dir(self.part("python"))
            .env(
                "PYTHONPATH",
                std::env::join_paths(paths).expect("no path has a colon"),
            )
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("RATEKEEPER", env!("CARGO_BIN_EXE_ratekeeper"));
        command
    }
}

/// The folder of the Node that npm installed.
pub(crate) fn node_folder() -> PathBuf {
    let machine = if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "x64"
    };
    tool_folder("clients-node").join(format!("node_modules/node-linux-{machine}/bin"))
}
