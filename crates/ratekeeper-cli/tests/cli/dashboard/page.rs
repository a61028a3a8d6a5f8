//! The page in Chromium, and load on the node that it shows.

use crate::support::{Ratekeeper, repository};
use ratekeeper_testkit::process::eventually;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// A page in Chromium, told what to do by lines of JSON.
pub(crate) struct Page {
    driver: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Page {
    pub(crate) fn open(service: &Ratekeeper) -> Self {
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
        let url = format!("http://127.0.0.1:{}/dashboard", service.admin);
        page.tell(json!({"command": "open", "url": url}));
        page
    }

    pub(crate) fn tell(&mut self, command: Value) -> Value {
        writeln!(self.commands, "{command}").expect("the driver reads");
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        assert!(read.is_ok_and(|count| count > 0), "the driver ended");
        let answer: Value = serde_json::from_str(&line).expect("it answers JSON");
        assert_eq!(answer["error"], Value::Null, "{command}");
        answer["ok"].clone()
    }

    pub(crate) fn text(&mut self, at: &str) -> String {
        let text = self.tell(json!({"command": "text", "at": at}));
        text.as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn click(&mut self, at: &str) {
        self.tell(json!({"command": "click", "at": at}));
    }

    pub(crate) fn write(&mut self, at: &str, text: &str) {
        self.tell(json!({"command": "type", "at": at, "text": text}));
    }

    /// Waits until the text at `at` satisfies `is_there`.
    pub(crate) fn wait(&mut self, at: &str, is_there: impl Fn(&str) -> bool) -> String {
        let mut text = String::new();
        eventually(&format!("{at} shows it"), || {
            text = self.text(at);
            is_there(&text)
        });
        text
    }

    pub(crate) fn shows(&mut self, at: &str, part: &str) -> String {
        self.wait(at, |text| text.contains(part))
    }

    /// Takes a picture for people: `target/dashboard/NAME.png`.
    pub(crate) fn picture(&mut self, name: &str) {
        let pictures = repository().join("target/dashboard");
        std::fs::create_dir_all(&pictures).expect("folders can be made");
        let path = pictures.join(format!("{name}.png"));
        self.tell(json!({"command": "picture", "path": path}));
    }

    pub(crate) fn tile(&mut self, name: &str) -> f64 {
        let at = format!(".tile:has(.name:text-is(\"{name}\")) .value");
        self.text(&at).replace(',', "").parse().unwrap_or(0.0)
    }

    /// Nothing failed in the page, and nothing was asked of another origin.
    pub(crate) fn end(mut self) {
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

/// Sends checks in the background while `work` runs.
pub(crate) fn under_load<T>(service: &Ratekeeper, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0_u32;
            while !is_over.load(Ordering::Relaxed) {
                number += 1;
                let customer = ["acme", "acme", "beta", "gamma"][(number % 4) as usize];
                service.check(&[("customer", customer), ("endpoint", "POST /orders")]);
                service.check(&[("ip", "192.0.2.1")]);
            }
        });
        // Also if `work` fails: the thread would never end.
        let over = Over(&is_over);
        let result = work();
        drop(over);
        result
    })
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
