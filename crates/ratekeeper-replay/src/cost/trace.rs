//! The lines of a trace: CSV with a first line that names the columns.

use std::borrow::Cow;

use memchr::memchr2;
use ratekeeper_core::{MAX_COUNT, Timestamp};
use ratekeeper_limiter::Check;
use ratekeeper_rules::{Domain, Entry, RuleSet};
use smallvec::SmallVec;

use super::CostOptions;
use crate::error::ColumnFault;
use crate::record::MalformedLine;
use crate::time;

/// The names of the columns that every trace has, in lower case.
const TIME: &[&str] = &["timestamp", "time", "arrived_at", "start_time"];
const PROMPT: &[&str] = &["contexttokens", "prompt_tokens", "input_tokens"];
const OUTPUT: &[&str] = &["generatedtokens", "completion_tokens", "output_tokens"];

/// The key of made-up users.
const USER: &str = "user";

/// The key by which rules tell the tokens of prompts and outputs apart.
const TOKENS: &str = "tokens";

/// The tokens that a descriptor pays for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TokenKind {
    All,
    Prompt,
    Output,
}

/// A call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) time: Timestamp,
    pub(crate) prompt: u64,
    pub(crate) output: u64,
    /// The values of the columns that descriptors name, in the order of [`Descriptors::columns`].
    values: SmallVec<[Box<str>; 2]>,
}

/// The places of the columns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Columns {
    time: usize,
    prompt: usize,
    output: usize,
    /// Those that descriptors name.
    named: Vec<usize>,
}

impl Columns {
    /// The columns that the first line of a trace names.
    pub(crate) fn named(head: &[u8], descriptors: &Descriptors) -> Result<Self, ColumnFault> {
        let head = fields(head).unwrap_or_default();
        let names: Vec<&str> = head.iter().map(|name| name.trim()).collect();
        let place = |any: &[&str], missing: &str| {
            let is_it = |name: &&str| any.iter().any(|known| name.eq_ignore_ascii_case(known));
            names.iter().position(is_it).ok_or_else(|| ColumnFault {
                missing: missing.to_owned(),
                known: names.join(", ").escape_debug().to_string(),
            })
        };
        let named = descriptors.columns.iter().map(|name| place(&[name], name));
        Ok(Self {
            time: place(TIME, "TIMESTAMP")?,
            prompt: place(PROMPT, "ContextTokens (or prompt_tokens, input_tokens)")?,
            output: place(
                OUTPUT,
                "GeneratedTokens (or completion_tokens, output_tokens)",
            )?,
            named: named.collect::<Result<_, _>>()?,
        })
    }

    /// The call of a line.
    pub(crate) fn read(&self, line: &[u8]) -> Result<Row, MalformedLine> {
        let row = fields(line).ok_or(MalformedLine::NotCsv)?;
        let text = |at: usize| row.get(at).map_or("", |text| text.trim());
        let tokens = |at: usize| {
            let tokens = text(at).parse().ok();
            let tokens = tokens.filter(|tokens| *tokens <= MAX_COUNT);
            tokens.ok_or(MalformedLine::NoTokens)
        };
        let time = match text(self.time) {
            "" => return Err(MalformedLine::NoTime),
            text => time::parse(text.as_bytes()).ok_or(MalformedLine::BadTime)?,
        };
        Ok(Row {
            time,
            prompt: tokens(self.prompt)?,
            output: tokens(self.output)?,
            values: self.named.iter().map(|at| text(*at).into()).collect(),
        })
    }
}

/// The fields of a line.
type RowFields<'a> = SmallVec<[Cow<'a, str>; 8]>;

fn fields(line: &[u8]) -> Option<RowFields<'_>> {
    // A reader for each line would cost more than all else that is done with it, and few lines have quotes.
    if memchr2(b'"', b'\r', line).is_none() {
        let text = std::str::from_utf8(line).ok()?;
        return Some(text.split(',').map(Cow::Borrowed).collect());
    }
    let record = quoted_fields(line)?;
    Some(
        record
            .iter()
            .map(|field| Cow::Owned(field.to_owned()))
            .collect(),
    )
}

fn quoted_fields(line: &[u8]) -> Option<csv::StringRecord> {
    let mut reader = csv::ReaderBuilder::new();
    let reader = reader.has_headers(false).buffer_capacity(line.len().max(1));
    let mut record = csv::StringRecord::new();
    let read = reader.from_reader(line).read_record(&mut record);
    read.ok()?.then_some(record)
}

/// The descriptors of a call.
#[derive(Clone, Debug)]
pub(crate) struct Descriptors {
    /// The columns that are read.
    columns: Vec<String>,
    /// The columns of each descriptor, by their places among those; the last place is that of made-up users.
    lists: Vec<Vec<usize>>,
    /// True for each list that rules may begin with.
    begins: Vec<bool>,
    /// True if rules may begin with `tokens`.
    apart: bool,
    /// The shares of made-up users, each with those of all before it.
    shares: Vec<f64>,
}

/// The descriptors of one call, and what each pays for.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) check: Check<'a>,
    pub(crate) parts: SmallVec<[TokenKind; 6]>,
}

impl Descriptors {
    pub(crate) fn new(options: &CostOptions, rules: &RuleSet, domain: &str) -> Self {
        let is_made_up = |name: &str| options.users > 0 && name == USER;
        let mut columns: Vec<String> = Vec::new();
        for name in options.descriptors.iter().flatten() {
            if !is_made_up(name) && !columns.contains(name) {
                columns.push(name.clone());
            }
        }
        let place = |name: &String| {
            let at = columns.iter().position(|known| known == name);
            at.unwrap_or(columns.len())
        };
        let mut lists: Vec<Vec<usize>> = options
            .descriptors
            .iter()
            .map(|list| list.iter().map(place).collect())
            .collect();
        if lists.is_empty() && options.users > 0 {
            lists.push(vec![columns.len()]);
        }
        // All calls together.
        lists.push(Vec::new());
        let domain = rules.domain(domain);
        let begins = |key: &str| domain.is_some_and(|domain: &Domain| domain.may_begin_with(key));
        let name = |at: usize| columns.get(at).map_or(USER, String::as_str);
        let begins_with =
            |list: &Vec<usize>| list.first().is_some_and(|first| begins(name(*first)));
        let mut sum = 0.0;
        let shares = (1..=options.users).map(|user| {
            sum += 1.0 / f64::from(user);
            sum
        });
        Self {
            begins: lists.iter().map(begins_with).collect(),
            shares: shares.collect(),
            apart: begins(TOKENS),
            lists,
            columns,
        }
    }

    /// The descriptors of a call.
    pub(crate) fn of<'a>(&'a self, domain: &'a str, row: &'a Row) -> Asked<'a> {
        let mut asked = Asked {
            check: Check::new(domain),
            parts: SmallVec::new(),
        };
        for (list, begins) in self.lists.iter().zip(&self.begins) {
            let entry = |at: &usize| Entry {
                key: self.columns.get(*at).map_or(USER, String::as_str),
                value: row.values.get(*at).map_or("", |value| value),
            };
            let entries: SmallVec<[Entry<'a>; 4]> = list.iter().map(entry).collect();
            // As a header that is not there.
            if entries.iter().any(|entry| entry.value.is_empty()) {
                continue;
            }
            if *begins {
                asked.add(TokenKind::All, entries.iter().copied());
            }
            if self.apart {
                let whole = entries.is_empty().then_some(("all", TokenKind::All));
                let apart = [("prompt", TokenKind::Prompt), ("output", TokenKind::Output)];
                for (value, part) in apart.into_iter().chain(whole) {
                    let first = Entry { key: TOKENS, value };
                    asked.add(part, std::iter::once(first).chain(entries.iter().copied()));
                }
            }
        }
        asked
    }

    /// Deals the call with this number to a made-up user, if there are any: the share of user-k is proportional to 1/k.
    pub(crate) fn deal(&self, row: &mut Row, number: u64) {
        if let Some(all) = self.shares.last() {
            let drawn = fraction(number) * all;
            let user = self.shares.partition_point(|share| *share <= drawn) + 1;
            row.values.push(format!("user-{user}").into());
        }
    }
}

impl<'a> Asked<'a> {
    fn add(&mut self, part: TokenKind, entries: impl Iterator<Item = Entry<'a>>) {
        self.check.push(entries).hits = 0;
        self.parts.push(part);
    }
}

/// A number of 0 to 1 that looks random, and is the same for the same `seed`.
///
/// Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (2014), SplitMix64.
#[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
fn fraction(seed: u64) -> f64 {
    let mut bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Lines without quotes are split as the reader of CSV splits them.
        #[test]
        fn plain_lines_are_split_as_any_other(line in "[a, \"\r;é]{1,12}") {
            let quoted = quoted_fields(line.as_bytes());
            let quoted: Option<Vec<String>> = quoted.map(|row| row.iter().map(str::to_owned).collect());
            let plain = fields(line.as_bytes());
            let plain: Option<Vec<String>> = plain.map(|row| row.iter().map(ToString::to_string).collect());
            prop_assert_eq!(plain, quoted);
        }
    }

    #[test]
    fn what_is_not_text_is_no_row() {
        assert_eq!(fields(b"1,\xff"), None);
        assert_eq!(fields(b"\"1\",\xff"), None);
    }
}
