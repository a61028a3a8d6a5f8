//! The script's text, joined from its files.

#[cfg(test)]
mod tests;

use super::algorithm::ScriptAlgorithm;

const DECIDE: &str = include_str!("decide.lua");

const ESCROW: &str = include_str!("escrow.lua");

const LENT: &str = include_str!("lent.lua");

const GET: &str = include_str!("get.lua");

const EQUAL_COUNT: &str = include_str!("equal_count.lua");

const TOKEN_BUCKET: &str = include_str!("token_bucket.lua");

const ALGORITHMS: [&str; 7] = [
    include_str!("fixed_window.lua"),
    include_str!("sub_windows.lua"),
    EQUAL_COUNT,
    TOKEN_BUCKET,
    include_str!("leaky_bucket.lua"),
    include_str!("sliding_log.lua"),
    include_str!("concurrency.lua"),
];

/// The mark that begins a section, and in `decide.lua` stands for one.
const MARK: &str = "--@ ";

/// The place of a section inside a section of an algorithm: one of the clock's, or one that the
/// algorithm needs in several places. A function of Lua's would cost a call each time.
const INNER: &str = "--= ";

/// The clock that decisions go by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// The server's own, as in production: all nodes share it.
    Server,
    /// The time in each call, for tests and replay. Counters outlive their expiry by an hour.
    FromCaller,
}

impl Clock {
    const fn text(self) -> &'static str {
        match self {
            Self::Server => include_str!("server_clock.lua"),
            Self::FromCaller => include_str!("told_clock.lua"),
        }
    }
}

/// The script, as it is loaded into a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    text: String,
    sha1: String,
}

impl Script {
    /// Makes the script that decides by this clock.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        let mut text = String::new();
        for line in code(DECIDE) {
            match line.trim_start().strip_prefix(MARK) {
                Some(place @ ("open" | "seal")) => {
                    let mut leases = String::new();
                    section(ESCROW, place, &mut leases);
                    leases
                        .lines()
                        .for_each(|line| place_line(line, clock, &mut text));
                }
                Some(place @ ("params" | "lower" | "resize")) => section(LENT, place, &mut text),
                _ => place_line(line, clock, &mut text),
            }
        }
        let mut whole = String::with_capacity(text.len());
        for line in text.lines() {
            match line.strip_prefix(INNER) {
                Some(place @ ("distance" | "form")) => section(EQUAL_COUNT, place, &mut whole),
                Some(place @ "full") => section(TOKEN_BUCKET, place, &mut whole),
                Some(place) => section(clock.text(), place, &mut whole),
                None => push(line, &mut whole),
            }
        }
        let sha1 = sha1_smol::Sha1::from(&whole).digest().to_string();
        Self { text: whole, sha1 }
    }

    /// Makes the script that adds up synced counters.
    #[must_use]
    pub fn synced() -> Self {
        let mut text = String::new();
        code(include_str!("synced.lua")).for_each(|line| push(line, &mut text));
        let sha1 = sha1_smol::Sha1::from(&text).digest().to_string();
        Self { text, sha1 }
    }

    /// The text for `SCRIPT LOAD`.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The digest for `EVALSHA`: 40 lower-case hexadecimal digits.
    #[must_use]
    pub fn sha1(&self) -> &str {
        &self.sha1
    }
}

/// Appends a line, or the sections that it stands for.
fn place_line(line: &str, clock: Clock, text: &mut String) {
    match line.trim_start().strip_prefix(MARK) {
        Some(place @ ("check" | "gone" | "read" | "answer" | "charge" | "lasts")) => {
            branches(place, text)
        }
        Some(place @ "get") => section(GET, place, text),
        Some(place) => section(clock.text(), place, text),
        None => push(line, text),
    }
}

/// Returns the lines that are neither empty nor a comment.
fn code(file: &str) -> impl Iterator<Item = &str> {
    let is_code = |line: &&str| {
        let line = line.trim_start();
        let is_mark = line.starts_with(MARK) || line.starts_with(INNER);
        !line.is_empty() && (is_mark || !line.starts_with("--"))
    };
    file.lines().filter(is_code)
}

fn push(line: &str, text: &mut String) {
    text.push_str(&ScriptAlgorithm::encode(line.trim_start()));
    text.push('\n');
}

/// Appends the algorithms' sections of that name, as branches on the step's algorithm: a mark says
/// the section's name, and the algorithms that it is for.
fn branches(name: &str, text: &mut String) {
    let mut word = "if";
    for file in ALGORITHMS {
        let mut is_open = false;
        for line in code(file) {
            if let Some(head) = line.strip_prefix(MARK) {
                let mut head = head.split(' ');
                is_open = head.next() == Some(name);
                if is_open {
                    let named: Vec<String> = head.map(|name| format!("code == {name}")).collect();
                    push(&format!("{word} {} then", named.join(" or ")), text);
                    word = "elseif";
                }
            } else if is_open {
                push(line, text);
            }
        }
    }
    push("end", text);
}

/// Appends the section of that name.
fn section(file: &str, name: &str, text: &mut String) {
    let mut is_open = false;
    for line in code(file) {
        if let Some(head) = line.strip_prefix(MARK) {
            is_open = head == name;
        } else if is_open {
            push(line, text);
        }
    }
}
