//! The dashboard in Chromium, driven by `dashboard/tests/driver.mjs` in lines of JSON.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::process::eventually;
use crate::ratekeeper::Ratekeeper;
use crate::repository;

/// An open page. Dropping it closes the browser.
#[derive(Debug)]
pub struct Page {
    driver: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Page {
    /// Opens the dashboard of a node.
    ///
    /// # Panics
    /// If the dashboard is not built, or Node does not start.
    #[must_use]
    pub fn open(node: &Ratekeeper) -> Self {
        let folder = repository().join("dashboard");
        assert!(
            folder.join("dist/dashboard.js").exists() && folder.join("node_modules").exists(),
            "the dashboard is not built: `cargo xtask test` builds it, with Node 20.19 or newer"
        );
        let mut driver = Command::new("node")
            .arg("tests/driver.mjs")
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Node starts");
        let commands = driver.stdin.take().expect("its input is piped");
        let answers = driver.stdout.take().expect("its output is piped");
        let mut page = Self {
            driver,
            commands,
            answers: BufReader::new(answers),
        };
        page.tell(json!({"command": "look", "width": 1280, "height": 900, "scheme": "light"}));
        let url = format!("http://127.0.0.1:{}/dashboard", node.admin);
        page.tell(json!({"command": "open", "url": url}));
        page
    }

    /// Has the driver do something, and returns what it answers.
    ///
    /// # Panics
    /// If it cannot.
    pub fn tell(&mut self, command: Value) -> Value {
        writeln!(self.commands, "{command}").expect("the driver reads");
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        assert!(read.is_ok_and(|count| count > 0), "the driver ended");
        let answer: Value = serde_json::from_str(&line).expect("it answers JSON");
        assert_eq!(answer["error"], Value::Null, "{command}");
        answer["ok"].clone()
    }

    /// The text at a selector.
    pub fn text(&mut self, at: &str) -> String {
        let text = self.tell(json!({"command": "text", "at": at}));
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Clicks there.
    pub fn click(&mut self, at: &str) {
        self.tell(json!({"command": "click", "at": at}));
    }

    /// Writes a text there.
    pub fn write(&mut self, at: &str, text: &str) {
        self.tell(json!({"command": "type", "at": at, "text": text}));
    }

    /// Waits until the text at a selector satisfies `is_there`, and returns it.
    pub fn wait(&mut self, at: &str, is_there: impl Fn(&str) -> bool) -> String {
        let mut text = String::new();
        eventually(&format!("{at} shows it"), || {
            text = self.text(at);
            is_there(&text)
        });
        text
    }

    /// Waits until the text there has this part.
    pub fn shows(&mut self, at: &str, part: &str) -> String {
        self.wait(at, |text| text.contains(part))
    }

    /// Takes a picture for people: `target/dashboard/NAME.png`.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn picture(&mut self, name: &str) {
        let pictures = repository().join("target/dashboard");
        std::fs::create_dir_all(&pictures).expect("folders can be made");
        let path = pictures.join(format!("{name}.png"));
        self.tell(json!({"command": "picture", "path": path}));
    }

    /// The number on the tile of this name.
    pub fn tile(&mut self, name: &str) -> f64 {
        let at = format!(".tile:has(.name:text-is(\"{name}\")) .value");
        self.text(&at).replace(',', "").parse().unwrap_or(0.0)
    }

    /// Closes the page.
    ///
    /// # Panics
    /// If something failed in it, or it asked another origin.
    pub fn end(mut self) {
        let said = self.tell(json!({"command": "complaints"}));
        assert_eq!(said, json!({"complaints": [], "foreign": []}));
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // Either may have ended already. The browser ends with its driver.
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
