//! `cargo xtask site`: the manual with the references of the API and of the library beside it, ready to be published.

use crate::book;
use crate::commit;
use crate::need;
use crate::run::binary_of_args;
use crate::steps::{Steps, cargo, succeed, target};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The viewer of OpenAPI documents: a package of npm, its version, and the file of it that is needed.
const VIEWER: (&str, &str, &str) = (
    "@scalar/api-reference",
    "1.46.4",
    "package/dist/browser/standalone.js",
);

/// The crates of the library whose reference is shown.
const CRATES: [&str; 2] = ["ratekeeper", "ratekeeper-client"];

/// The time in which the binary has to tell its API.
const START_MAX: Duration = Duration::from_secs(60);

/// Builds the site; `args` may be `--binary PATH`, which tells the API in place of a release build.
pub(crate) fn site(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    let binary = binary_of_args(args, "site", "--binary")?;
    let version = commit::version()?;
    let folder = target().join("site");
    // A folder for each version: a host of the site keeps those of earlier ones beside it.
    let site = folder.join(&version);
    if site.exists() {
        fs::remove_dir_all(&site)?;
    }
    steps.step("tools", "mdbook", || need::cargo_tool(&need::MDBOOK))?;
    let mut command = book::mdbook(&site);
    command.env("MDBOOK_BOOK__TITLE", format!("Ratekeeper {version}"));
    command.env(
        "MDBOOK_OUTPUT__HTML__ADDITIONAL_JS",
        r#"["xtask/src/site/links.js"]"#,
    );
    steps.command("book", &mut command)?;
    steps.step("api", "OpenAPI documents and their viewer", || {
        api(&binary, &site.join("api"))
    })?;
    let mut doc = cargo(["doc", "--no-deps", "--locked", "--all-features"]);
    doc.args(CRATES.iter().flat_map(|name| ["--package", name]));
    let docs = target().join("site-rust");
    doc.arg("--target-dir").arg(&docs);
    steps.command("rust", &mut doc)?;
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(docs.join("doc")).arg(site.join("rust"));
    steps.command("copy", &mut copy)?;
    let index = include_str!("site/index.html").replace("VERSION", &version);
    fs::write(folder.join("index.html"), index)?;
    steps.finish("site");
    eprintln!("the site is {}", folder.join("index.html").display());
    Ok(())
}

/// Writes the reference of the API, as the binary tells it.
fn api(binary: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let mut page = include_str!("site/api.html").to_owned();
    let node = Node::start(binary)?;
    for (listener, name) in [("http", "SERVICE"), ("admin", "ADMIN")] {
        let document = node.document(listener)?;
        // Whatever a description says, it does not end the script.
        page = page.replace(name, &document.replace("</", "<\\/"));
        fs::write(
            folder.join(format!("{}.json", name.to_lowercase())),
            document,
        )?;
    }
    fs::write(folder.join("index.html"), page)?;
    let (package, version, file) = VIEWER;
    let tools = target().join("tools/api-viewer");
    fs::create_dir_all(&tools)?;
    let mut pack = Command::new("npm");
    pack.args(["pack", "--silent", &format!("{package}@{version}")]);
    pack.current_dir(&tools).stdout(Stdio::null());
    succeed(&mut pack).context("the viewer of API documents cannot be fetched")?;
    let archive = format!(
        "{}-{version}.tgz",
        package.trim_start_matches('@').replace('/', "-")
    );
    succeed(
        Command::new("tar")
            .args(["xzf", &archive, file])
            .current_dir(&tools),
    )?;
    fs::copy(tools.join(file), folder.join("standalone.js"))?;
    Ok(())
}

/// A node that is asked for its documents, over Unix sockets, so that no port has to be free. Killed when dropped.
struct Node {
    process: Child,
    folder: PathBuf,
}

impl Node {
    fn start(binary: &Path) -> Result<Node> {
        let folder = std::env::temp_dir().join(format!("ratekeeper-site-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        fs::write(
            folder.join("rules.yaml"),
            "domain: api\ndescriptors: [{ key: user, rate_limit: { window: 1m, limit: 5 } }]\n",
        )?;
        let at = |name: &str| format!("unix:{}/{name}.sock", folder.display());
        let mut command = Command::new(binary);
        command
            .current_dir(&folder)
            .args(["serve", "--rules", "rules.yaml"]);
        command.args([
            "--http",
            &at("http"),
            "--admin",
            &at("admin"),
            "--grpc",
            &at("grpc"),
        ]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().context("the binary cannot be started")?;
        Ok(Node { process, folder })
    }

    /// The OpenAPI document of a listener.
    fn document(&self, listener: &str) -> Result<String> {
        let end = Instant::now() + START_MAX;
        loop {
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--fail", "--unix-socket"]);
            curl.arg(self.folder.join(format!("{listener}.sock")));
            let output = curl.arg("http://localhost/openapi.json").output()?;
            if output.status.success() {
                return Ok(String::from_utf8(output.stdout)?);
            }
            if Instant::now() > end {
                bail!("the binary does not tell the API of its listener `{listener}`");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
