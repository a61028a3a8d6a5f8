//! JSON lines.
//!
//! This is not a JSON parser but a scanner that follows the configured paths and skips the rest. It
//! accepts the output of real servers, which is not always JSON: `\x16` from an NGINX without
//! `escape=json`, or bytes that are not UTF-8. A line whose object does not end is malformed.

use std::borrow::Cow;

use memchr::memchr2;
use smallvec::SmallVec;

use super::request::{self, RequestTarget};
use super::text::{lossy, present, unescape, unescaped, without_port};
use crate::fields::{Fields, Target};
use crate::record::{LogField, MalformedLine, Record};
use crate::time::TimeReader;

pub(super) fn parse<'a>(
    line: &'a [u8],
    fields: &Fields,
    time: &mut TimeReader,
) -> Result<Record<'a>, MalformedLine> {
    let mut found = Found {
        fields,
        values: SmallVec::new(),
    };
    found.values.resize(SLOT_EXTRA + fields.extra().len(), None);
    let mut rest = Scanner { rest: line };
    rest.spaces();
    rest.eat(b'{')
        .and_then(|()| found.object(&mut rest, &[], 0))
        .ok_or(MalformedLine::NotJson)?;
    if !rest.rest.trim_ascii_start().is_empty() {
        return Err(MalformedLine::NotJson);
    }

    let address = found
        .bytes(Target::Field(LogField::RemoteAddress))
        .ok_or(MalformedLine::NoAddress)?;
    let at = found.bytes(Target::Time).ok_or(MalformedLine::NoTime)?;
    let at = time.read(&unescape(at)).ok_or(MalformedLine::BadTime)?;
    let mut record = Record::new(at, address_text(address).ok_or(MalformedLine::NoAddress)?);
    if let Some(line) = found.bytes(Target::Request) {
        (record.method, (record.path, record.query)) = method_and_target(line);
    }
    if let Some(method) = found.text(LogField::Method) {
        record.method = Some(method);
    }
    let target = found.bytes(Target::Field(LogField::Path)).map(target_text);
    if let Some((Some(path), query)) = target {
        (record.path, record.query) = (Some(path), query);
    }
    if let Some(query) = found.text(LogField::Query) {
        record.query = Some(query);
    }
    record.user_agent = found.text(LogField::UserAgent);
    record.status = found.text(LogField::Status);
    record.host = found.text(LogField::Host);
    record.user = found.text(LogField::User);
    record.referer = found.text(LogField::Referer);
    record.extra = found.values[SLOT_EXTRA..]
        .iter()
        .map(|value| unescaped(value.as_ref()?.1))
        .collect();
    Ok(record)
}

fn address_text(raw: &[u8]) -> Option<Cow<'_, str>> {
    match unescape(raw) {
        Cow::Borrowed(raw) => present(without_port(raw)),
        Cow::Owned(raw) => owned(present(without_port(&raw))),
    }
}

/// A path and a query.
type PathAndQuery<'a> = (Option<Cow<'a, str>>, Option<Cow<'a, str>>);

/// Unescapes and splits the request line: it may contain escaped quotes, and escapes may stand for
/// spaces.
fn method_and_target(raw: &[u8]) -> (Option<Cow<'_, str>>, PathAndQuery<'_>) {
    match unescape(raw) {
        Cow::Borrowed(raw) => {
            let (method, target) = request::split(raw);
            (method.map(lossy), path_and_query(target))
        }
        Cow::Owned(raw) => {
            let (method, target) = request::split(&raw);
            let (path, query) = path_and_query(target);
            (owned(method.map(lossy)), (owned(path), owned(query)))
        }
    }
}

fn target_text(raw: &[u8]) -> PathAndQuery<'_> {
    match unescape(raw) {
        Cow::Borrowed(raw) => path_and_query(request::parse_target(raw)),
        Cow::Owned(raw) => {
            let (path, query) = path_and_query(request::parse_target(&raw));
            (owned(path), owned(query))
        }
    }
}

fn path_and_query(target: Option<RequestTarget<'_>>) -> PathAndQuery<'_> {
    let query = target
        .map(|target| target.query)
        .filter(|query| !query.is_empty());
    (target.map(|target| lossy(target.path)), query.map(lossy))
}

fn owned<'a>(text: Option<Cow<'_, str>>) -> Option<Cow<'a, str>> {
    text.map(|text| Cow::Owned(text.into_owned()))
}

/// The raw values found so far, one slot for each target.
struct Found<'a, 'f> {
    fields: &'f Fields,
    values: SmallVec<[Slot<'a>; 16]>,
}

/// A value with the priority of its path.
type Slot<'a> = Option<(u8, &'a [u8])>;

const SLOT_EXTRA: usize = 11;

fn slot(target: Target) -> usize {
    match target {
        Target::Time => 0,
        Target::Request => 1,
        Target::Field(LogField::RemoteAddress) => 2,
        Target::Field(LogField::Method) => 3,
        Target::Field(LogField::Path) => 4,
        Target::Field(LogField::UserAgent) => 5,
        Target::Field(LogField::Status) => 6,
        Target::Field(LogField::Host) => 7,
        Target::Field(LogField::User) => 8,
        Target::Field(LogField::Referer) => 9,
        Target::Field(LogField::Query) => 10,
        Target::Field(LogField::Extra(index)) => SLOT_EXTRA + usize::from(index),
    }
}

impl<'a> Found<'a, '_> {
    fn bytes(&self, target: Target) -> Option<&'a [u8]> {
        self.values
            .get(slot(target))
            .copied()
            .flatten()
            .map(|(_, raw)| raw)
    }

    fn text(&self, field: LogField) -> Option<Cow<'a, str>> {
        self.bytes(Target::Field(field)).and_then(unescaped)
    }

    /// Reads an object after its brace; `prefix` is the path to it.
    fn object(&mut self, rest: &mut Scanner<'a>, prefix: &[u8], depth: usize) -> Option<()> {
        let mut path: SmallVec<[u8; 64]> = SmallVec::new();
        rest.spaces();
        if rest.eat(b'}').is_some() {
            return Some(());
        }
        loop {
            rest.spaces();
            let key = unescape(rest.string()?);
            rest.spaces();
            rest.eat(b':')?;
            rest.spaces();
            if prefix.is_empty() {
                self.value(rest, &key, depth)?;
            } else {
                path.clear();
                path.extend_from_slice(prefix);
                path.push(b'.');
                path.extend_from_slice(&key);
                self.value(rest, &path, depth)?;
            }
            rest.spaces();
            if rest.eat(b',').is_none() {
                return rest.eat(b'}');
            }
        }
    }

    /// Reads the value at `path`: keeps it, descends into it, or skips it.
    fn value(&mut self, rest: &mut Scanner<'a>, path: &[u8], depth: usize) -> Option<()> {
        let fields = self.fields;
        let (uses, leads_on) = fields.look_up(path);
        match rest.peek()? {
            b'{' if leads_on && depth < Fields::DEPTH_MAX => {
                rest.eat(b'{')?;
                self.object(rest, path, depth + 1)
            }
            b'[' if !uses.is_empty() => {
                let (first, list) = (rest.first_of_list(), rest.skip());
                first.into_iter().for_each(|scalar| self.keep(uses, scalar));
                list
            }
            b'{' | b'[' => rest.skip(),
            _ => {
                let scalar = rest.scalar()?;
                self.keep(uses, scalar);
                Some(())
            }
        }
    }

    fn keep(&mut self, uses: &[(Target, u8)], scalar: Scalar<'a>) {
        let raw = match scalar {
            Scalar::Text(b"" | b"-") | Scalar::Word(b"-" | b"null") => return,
            Scalar::Text(raw) | Scalar::Word(raw) => raw,
        };
        for &(target, rank) in uses {
            let yields = target == Target::Time && !is_moment(raw);
            let rank = if yields { rank | YIELDING } else { rank };
            if let Some(kept) = self.values.get_mut(slot(target))
                && kept.is_none_or(|(best, _)| rank < best)
            {
                *kept = Some((rank, raw));
            }
        }
    }
}

/// The mark of a time that yields to one under any other name.
const YIELDING: u8 = 1 << 7;

/// False for text that is too short for a moment since 1973, and for small numbers with a fraction: some logs tell under
/// `time` how long a request took.
fn is_moment(raw: &[u8]) -> bool {
    raw.get(..9).is_some_and(|first| !first.contains(&b'.'))
}

/// A value that is neither a list nor an object.
#[derive(Clone, Copy)]
enum Scalar<'a> {
    /// Between quotes, still escaped.
    Text(&'a [u8]),
    /// A number or a word.
    Word(&'a [u8]),
}

/// The rest of the line.
#[derive(Clone, Copy)]
struct Scanner<'a> {
    rest: &'a [u8],
}

impl<'a> Scanner<'a> {
    fn spaces(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn eat(&mut self, wanted: u8) -> Option<()> {
        let (first, after) = self.rest.split_first()?;
        (*first == wanted).then(|| self.rest = after)
    }

    /// A string without its quotes, still escaped.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.eat(b'"')?;
        let inside = self.rest;
        let mut from = 0;
        loop {
            let at = from + memchr2(b'"', b'\\', inside.get(from..)?)?;
            if inside[at] == b'"' {
                self.rest = &inside[at + 1..];
                return Some(&inside[..at]);
            }
            from = at + 2;
        }
    }

    /// A string, or a number or word up to its delimiter.
    fn scalar(&mut self) -> Option<Scalar<'a>> {
        if self.peek()? == b'"' {
            return self.string().map(Scalar::Text);
        }
        let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']') || byte.is_ascii_whitespace();
        let end = self.rest.iter().position(ends)?;
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!word.is_empty()).then_some(Scalar::Word(word))
    }

    /// The first value of the next list, if it is a scalar; consumes nothing.
    fn first_of_list(mut self) -> Option<Scalar<'a>> {
        self.eat(b'[')?;
        self.spaces();
        match self.peek()? {
            b'[' | b'{' | b']' => None,
            _ => self.scalar(),
        }
    }

    /// Skips a list or an object. Counts brackets instead of recursing: a line of a million
    /// brackets must not exhaust the stack.
    fn skip(&mut self) -> Option<()> {
        let mut open = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => open += 1,
                b'}' | b']' => open -= 1,
                _ => {}
            }
            self.rest = &self.rest[1..];
            if open == 0 {
                return Some(());
            }
        }
    }
}
