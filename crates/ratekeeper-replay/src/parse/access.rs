//! Common Log Format and combined.
//!
//! ```text
//! 192.0.2.7 - frank [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 2326 "referer" "agent"
//! address   user    time                          request          status bytes
//! ```
//! Servers differ in what they escape, and clients send arbitrary bytes, so the line is parsed from
//! fixed points: the address is the first word (behind a virtual host the second, and a list has several), the time is the last valid one in brackets before the
//! first quote, and the request ends at the quote before the status.

use std::net::IpAddr;

use memchr::{memchr, memchr_iter, memchr2, memrchr_iter};
use ratekeeper_core::Timestamp;

use super::request;
use super::text::{lossy, present, unescaped, without_port};
use crate::record::{MalformedLine, Record};
use crate::time::TimeReader;

pub(super) fn parse<'a>(
    line: &'a [u8],
    time: &mut TimeReader,
) -> Result<Record<'a>, MalformedLine> {
    let line = line.trim_ascii_start();
    let end = end_of_address(line).ok_or(MalformedLine::NoTime)?;
    let (first, rest) = (&line[..end], &line[end + 1..]);
    let (virtual_host, address, rest) = match address_behind_host(first, rest) {
        Some((address, rest)) => (Some(first), address, rest),
        None => (None, without_port(first), rest),
    };
    if matches!(address, b"" | b"-") || address.starts_with(b"[") {
        return Err(MalformedLine::NoAddress);
    }
    let (before, at, rest) = find_time(rest, time)?;
    let mut record = Record::new(at, lossy(address));
    record.host = virtual_host.map(|host| lossy(without_port(host)));
    record.user = user(before);

    let Some(rest) = rest.trim_ascii_start().strip_prefix(b"\"") else {
        return Ok(record);
    };
    let (line, rest) = split_request(rest);
    if let (Some(method), target) = request::split(line) {
        record.method = present(method);
        record.path = target.and_then(|target| unescaped(target.path));
        record.query = target.and_then(|target| unescaped(target.query));
    }
    let mut words = rest.trim_ascii_start();
    record.status = present(next_word(&mut words));
    next_word(&mut words);
    record.referer = next_quoted(&mut words).and_then(unescaped);
    record.user_agent = next_quoted(&mut words).and_then(unescaped);
    Ok(record)
}

/// The end of the first word; of the last word of a list with spaces behind its commas, as `X-Forwarded-For` has.
fn end_of_address(line: &[u8]) -> Option<usize> {
    let is_end = |space: &usize| !line[..*space].ends_with(b",");
    memchr_iter(b' ', line).find(is_end)
}

/// The address behind the name of a virtual host, which stands first in `vhost_combined`, and the text behind it. The word
/// there is `-` in other logs.
fn address_behind_host<'a>(first: &[u8], rest: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    if rest.starts_with(b"- ") {
        return None;
    }
    let end = memchr(b' ', rest)?;
    let is_address =
        |word: &[u8]| std::str::from_utf8(word).is_ok_and(|word| word.parse::<IpAddr>().is_ok());
    let is_host =
        is_address(&rest[..end]) && !first.contains(&b',') && !is_address(without_port(first));
    is_host.then(|| (&rest[..end], &rest[end + 1..]))
}

/// Splits at the time: the text before it, the time, and the text after its bracket.
///
/// The client chooses the name of the user, which may hold brackets and whole times, but servers escape the quotes in it.
/// So the last time before the first quote counts, and the first of all only where no quote follows one.
fn find_time<'a>(
    rest: &'a [u8],
    time: &mut TimeReader,
) -> Result<(&'a [u8], Timestamp, &'a [u8]), MalformedLine> {
    let quote = quotes(rest).next().unwrap_or(0);
    let before = memrchr_iter(b'[', &rest[..quote]).take(BRACKETS_MAX);
    let any = memchr_iter(b'[', rest).take(BRACKETS_MAX);
    let mut found = MalformedLine::NoTime;
    for open in before.chain(any) {
        let inside = &rest[open + 1..];
        let near = inside.get(..TimeReader::LONGEST).unwrap_or(inside);
        let Some(close) = memchr(b']', near) else {
            continue;
        };
        match time.read(&inside[..close]) {
            Some(at) => return Ok((&rest[..open], at, &inside[close + 1..])),
            None => found = MalformedLine::BadTime,
        }
    }
    Err(found)
}

/// The most brackets to try, so that a line of nothing but brackets stays cheap.
const BRACKETS_MAX: usize = 8;

/// The user: the text after the ident, which may contain spaces.
fn user(before: &[u8]) -> Option<std::borrow::Cow<'_, str>> {
    let ident = memchr(b' ', before)?;
    unescaped(before[ident + 1..].trim_ascii())
}

/// Splits at the quote that ends the request: the first unescaped one before a status. If there is
/// none, the server does not escape, and the first of all quotes before a status counts. If there
/// is none either, the request is the rest of the line.
fn split_request(rest: &[u8]) -> (&[u8], &[u8]) {
    let escaped = quotes(rest).find(|&quote| is_before_status(&rest[quote + 1..]));
    let end = escaped
        .or_else(|| memchr_iter(b'"', rest).find(|&quote| is_before_status(&rest[quote + 1..])));
    match end {
        Some(quote) => (&rest[..quote], &rest[quote + 1..]),
        None => (rest, b""),
    }
}

fn is_before_status(rest: &[u8]) -> bool {
    match rest {
        [b' ', b'-', after @ ..] => matches!(after.first(), None | Some(b' ')),
        [b' ', a, b, c, after @ ..] => {
            [a, b, c].into_iter().all(u8::is_ascii_digit)
                && matches!(after.first(), None | Some(b' '))
        }
        _ => false,
    }
}

/// Positions of the quotes without a backslash before them.
fn quotes(text: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let at = from + memchr2(b'"', b'\\', text.get(from..)?)?;
            if text[at] == b'"' {
                from = at + 1;
                return Some(at);
            }
            from = at + 2;
        }
    })
}

/// Takes the next word and the space after it.
fn next_word<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let end = memchr(b' ', rest).unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    *rest = after.trim_ascii_start();
    word
}

/// Takes the next quoted text. A missing quote at the end of the line is tolerated.
fn next_quoted<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let inside = rest.strip_prefix(b"\"")?;
    let end = quotes(inside)
        .find(|&quote| matches!(inside.get(quote + 1), None | Some(b' ')))
        .unwrap_or(inside.len());
    *rest = inside.get(end + 1..).unwrap_or_default().trim_ascii_start();
    Some(&inside[..end])
}
