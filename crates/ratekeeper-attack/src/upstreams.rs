//! Real application servers, and NGINX in front of them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use ratekeeper_testkit::examples::with_changes;
use ratekeeper_testkit::process::{Process, free_port, system};
use tempfile::TempDir;

/// A kind of application server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// gunicorn with Flask.
    Flask,
    /// uWSGI with Django.
    Django,
    /// Node with Express, its routes compared letter by letter.
    Express,
    /// Node with Express as it comes: routes in upper or lower case, with or without a slash at the end.
    LaxExpress,
    /// Go's `net/http`.
    Go,
}

impl Kind {
    /// All kinds that this machine can run: Go is left out where there is none.
    pub(crate) fn available() -> Vec<Self> {
        let mut kinds = vec![Self::Flask, Self::Django, Self::Express, Self::LaxExpress];
        match has_go() {
            true => kinds.push(Self::Go),
            false => eprintln!("Go is missing: its application is left out"),
        }
        kinds
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Flask => "gunicorn, Flask",
            Self::Django => "uWSGI, Django",
            Self::Express => "Express, strict routes",
            Self::LaxExpress => "Express",
            Self::Go => "Go",
        }
    }
}

/// A running application, which answers every request with what it took it for.
#[derive(Debug)]
pub(crate) struct App {
    /// The port of HTTP.
    pub(crate) port: u16,
    /// The port of the uwsgi protocol, where it is spoken.
    uwsgi: Option<u16>,
    _process: Process,
    /// The program, if it was built.
    _folder: TempDir,
}

impl App {
    pub(crate) fn start(kind: Kind) -> Result<Self> {
        let port = free_port();
        let uwsgi = (kind == Kind::Django).then(free_port);
        let at = |port: u16| format!("127.0.0.1:{port}");
        let folder = tempfile::tempdir()?;
        let mut command = match kind {
            Kind::Flask => {
                let mut command = system("gunicorn");
                command.args(["--workers", "1", "--threads", "4", "--bind", &at(port)]);
                command.args(["--pythonpath", ".", "flask_app:app"]);
                command
            }
            Kind::Django => {
                let mut command = system("uwsgi");
                command.args(["--plugin", "python3", "--http-socket", &at(port)]);
                command.args(["--socket", &uwsgi.map(at).unwrap_or_default()]);
                command.args(["--pythonpath", ".", "--module", "django_app:application"]);
                command.args(["--master", "--die-on-term", "--need-app", "--threads", "4"]);
                command
            }
            Kind::Express | Kind::LaxExpress => {
                let mut command = Command::new("node");
                command.env("NODE_PATH", node_modules()?);
                command.args(["express/app.js", &port.to_string()]);
                command.args((kind == Kind::LaxExpress).then_some("lax"));
                command
            }
            Kind::Go => {
                let mut command = Command::new(build_go(folder.path())?);
                command.arg(port.to_string());
                command
            }
        };
        command
            .current_dir(apps())
            .env("PYTHONDONTWRITEBYTECODE", "1");
        let mut process = Process::spawn(kind.name(), command);
        process.wait_for_port(port);
        uwsgi.iter().for_each(|port| process.wait_for_port(*port));
        Ok(Self {
            port,
            uwsgi,
            _process: process,
            _folder: folder,
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// NGINX as `examples/nginx` has it, in front of an application. It passes headers with underscores on, which is off as
/// NGINX comes.
#[derive(Debug)]
pub(crate) struct Nginx {
    pub(crate) port: u16,
    _process: Process,
    _folder: TempDir,
}

impl Nginx {
    /// It asks the service whose HTTP port is `ratekeeper`.
    pub(crate) fn start(app: &App, ratekeeper: u16) -> Result<Self> {
        let port = free_port();
        let pass = match app.uwsgi {
            Some(_) => "include /etc/nginx/uwsgi_params; uwsgi_pass service;",
            None => "proxy_pass http://service;",
        };
        let changes = [
            (
                "127.0.0.1:9000",
                format!("127.0.0.1:{}", app.uwsgi.unwrap_or(app.port)),
            ),
            ("127.0.0.1:8080", format!("127.0.0.1:{ratekeeper}")),
            (":10000", format!(":{port}")),
            ("proxy_pass http://service;", pass.to_owned()),
            (
                "access_log off;",
                "access_log off; underscores_in_headers on;".to_owned(),
            ),
            // A machine that is busy must not open the door: requests pass that are not answered in time.
            ("250ms", "20s".to_owned()),
        ];
        let folder = tempfile::tempdir()?;
        let config = with_changes("nginx/nginx.conf", folder.path(), &changes);
        let mut command = system("nginx");
        command.arg("-p").arg(folder.path()).arg("-c").arg(config);
        command.args(["-g", "daemon off;"]);
        let mut process = Process::spawn("nginx", command);
        process.wait_for_port(port);
        Ok(Self {
            port,
            _process: process,
            _folder: folder,
        })
    }
}

fn has_go() -> bool {
    let mut go = Command::new("go");
    go.arg("version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    go.status().is_ok_and(|status| status.success())
}

/// Builds the application in Go, and returns the program.
fn build_go(folder: &Path) -> Result<PathBuf> {
    let program = folder.join("app");
    let mut go = Command::new("go");
    go.current_dir(apps().join("go")).args(["build", "-o"]);
    let status = go.arg(&program).arg(".").status()?;
    ensure!(status.success(), "the application in Go cannot be built");
    Ok(program)
}

fn apps() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("apps")
}

/// The packages that `cargo xtask` installs for Express below the target folder.
fn node_modules() -> Result<PathBuf> {
    let here = std::env::current_exe().context("this program does not know where it lies")?;
    let places = here
        .ancestors()
        .map(|folder| folder.join("tools/express/node_modules"));
    let mut found = places.filter(|place| place.is_dir());
    found.next().context(
        "Express is not on this machine, and the campaign needs it: `cargo xtask test` installs it",
    )
}
