//! The dashboard in Chromium, driven by `dashboard/tests/driver.mjs` in lines of JSON.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

/// The longest that the page may take to connect.
const CONNECT_MAX: Duration = Duration::from_secs(30);

/// An open page.
pub(crate) struct Page {
    driver: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// The memory of a page.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct PageMemory {
    /// Private memory of the process that shows it.
    pub(crate) process_bytes: u64,
    /// The objects of its program, dead ones included.
    pub(crate) heap_bytes: u64,
}

impl Page {
    /// Opens the page at `url`, and waits until it shows live figures.
    pub(crate) fn open(folder: &Path, url: &str) -> Result<Self> {
        let mut driver = Command::new("node")
            .arg("tests/driver.mjs")
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("Node cannot be started")?;
        let commands = driver.stdin.take().context("its input is piped")?;
        let answers = driver.stdout.take().context("its output is piped")?;
        let mut page = Self {
            driver,
            commands,
            answers: BufReader::new(answers),
        };
        page.tell(&json!({"command": "look", "width": 1280, "height": 900, "scheme": "light"}))?;
        page.tell(&json!({"command": "open", "url": url}))?;
        let opened = Instant::now();
        while !page.is_live()? {
            ensure!(
                opened.elapsed() < CONNECT_MAX,
                "the page does not connect: was the dashboard built?"
            );
            sleep(Duration::from_millis(200));
        }
        Ok(page)
    }

    /// Returns true if the page shows what the node says now.
    pub(crate) fn is_live(&mut self) -> Result<bool> {
        let shown = self.tell(&json!({"command": "text", "at": "#connection"}))?;
        Ok(shown == "live")
    }

    pub(crate) fn memory(&mut self) -> Result<PageMemory> {
        let told = self.tell(&json!({"command": "memory"}))?;
        Ok(serde_json::from_value(told)?)
    }

    /// Closes the page.
    ///
    /// # Errors
    /// Something failed in it, or it asked another origin.
    pub(crate) fn close(mut self) -> Result<()> {
        let said = self.tell(&json!({"command": "complaints"}))?;
        ensure!(
            said == json!({"complaints": [], "foreign": []}),
            "the page complained: {said}"
        );
        Ok(())
    }

    fn tell(&mut self, command: &Value) -> Result<Value> {
        writeln!(self.commands, "{command}")?;
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("the driver ended: `npm ci` in dashboard/ installs what it needs");
        }
        let mut answer: Value = serde_json::from_str(&line)?;
        if let Some(error) = answer.get("error") {
            bail!("{command}: {error}");
        }
        Ok(answer["ok"].take())
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // Either may have ended already. The browser ends with its driver.
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
