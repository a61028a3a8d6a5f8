use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

/// Hands out a few bytes at a time, as pipes do.
struct Trickle(Cursor<Vec<u8>>, usize);

impl Read for Trickle {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.1.min(buffer.len());
        self.0.read(&mut buffer[..most])
    }
}

fn lines_of(bytes: &[u8], at_once: usize) -> io::Result<Shown> {
    all_lines(bytes, at_once).map(|(lines, _)| lines)
}

/// Lines, each with true if it is whole.
type Shown = Vec<(Vec<u8>, bool)>;

/// All lines, and true if something followed that is no gzip.
fn all_lines(bytes: &[u8], at_once: usize) -> io::Result<(Shown, bool)> {
    let mut lines = Lines::new(Trickle(Cursor::new(bytes.to_vec()), at_once))?;
    let mut all = Vec::new();
    while let Some(line) = lines.next()? {
        all.push(match line {
            Line::Whole(line) => (line.to_vec(), true),
            Line::TooLong(line) => (line.to_vec(), false),
        });
    }
    let has_garbage = lines.has_garbage();
    if !has_garbage {
        assert_eq!(lines.bytes_read(), bytes.len() as u64);
    }
    Ok((all, has_garbage))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory takes every write");
    encoder.finish().expect("memory takes every write")
}

fn whole(lines: &[&str]) -> Shown {
    lines
        .iter()
        .map(|line| (line.as_bytes().to_vec(), true))
        .collect()
}

#[test]
fn lines_however_they_arrive_and_end() {
    for at_once in [1, 2, 3, 7, 1 << 20] {
        assert_eq!(
            lines_of(b"a\nbc\r\n\nd", at_once).expect("memory"),
            whole(&["a", "bc", "", "d"])
        );
        assert_eq!(lines_of(b"a\n", at_once).expect("memory"), whole(&["a"]));
        assert_eq!(lines_of(b"", at_once).expect("memory"), whole(&[]));
        assert_eq!(
            lines_of(b"\xef\xbb\xbfa\n", at_once).expect("memory"),
            whole(&["a"])
        );
    }
}

#[test]
fn gzip_of_one_or_several_members() {
    let members = [gzip(b"a\nb"), gzip(b"c\nd\n")].concat();
    for at_once in [1, 5, 1 << 20] {
        assert_eq!(
            lines_of(&members, at_once).expect("good gzip"),
            whole(&["a", "bc", "d"])
        );
    }
}

/// As `zcat` does: tools pad archives with zeros, and a log may be followed by anything.
#[test]
fn what_follows_gzip_is_left_out() {
    let member = gzip(b"a\nb\n");
    let padded = [&member[..], &[0; 512], &member, &[0; 700]].concat();
    for at_once in [1, 7, 1 << 20] {
        let (lines, has_garbage) = all_lines(&padded, at_once).expect("good gzip");
        assert_eq!(lines, whole(&["a", "b", "a", "b"]));
        assert!(!has_garbage);
        for garbage in [&b"hello"[..], b"\x1fhello", b"\0\0hello\0"] {
            let log = [&padded[..], garbage].concat();
            let (lines, has_garbage) = all_lines(&log, at_once.max(2)).expect("good gzip");
            assert_eq!(lines, whole(&["a", "b", "a", "b"]));
            assert!(has_garbage);
        }
    }
}

#[test]
fn a_byte_order_mark_is_part_of_no_line() {
    let marked = b"\xef\xbb\xbfa\nb\n\xef\xbb\xbfc\n";
    for log in [marked.to_vec(), gzip(marked)] {
        assert_eq!(lines_of(&log, 3).expect("memory"), whole(&["a", "b", "c"]));
    }
}

#[test]
fn other_compression_is_told_by_its_first_bytes() {
    for (first, name) in [
        (&b"\xfd7zXZ\0\0\x04"[..], "xz"),
        (b"BZh91AY&SY12", "bzip2"),
        (b"\x28\xb5\x2f\xfd\x04", "zstd"),
        (b"\x04\x22\x4d\x18", "lz4"),
        (b"PK\x03\x04\x14", "zip"),
        (b"\x1f\x9d\x90", "compress"),
    ] {
        let error = lines_of(first, 1).expect_err(name).to_string();
        assert!(error.starts_with(&format!("it is {name}: ")), "{error}");
        assert!(error.contains("| ratekeeper replay"), "{error}");
    }
    for log in ["BZh is a name", "PK", "P"] {
        assert_eq!(lines_of(log.as_bytes(), 1).expect(log), whole(&[log]));
    }
}

#[test]
fn gzip_that_is_cut_off_is_an_error() {
    let cut = gzip(&b"a line\n".repeat(100));
    assert!(lines_of(&cut[..cut.len() - 9], 1 << 20).is_err());
}

#[test]
fn a_line_that_is_too_long_is_one_line_and_is_not_kept() {
    for extra in [0, 1, Lines::CHUNK, 5 * LINE_BYTES_MAX] {
        for ending in ["\nshort\n", "\nshort", "\n", ""] {
            let mut log = b"first\n".to_vec();
            log.resize(log.len() + LINE_BYTES_MAX + extra, b'x');
            log.extend_from_slice(ending.as_bytes());
            let lines = lines_of(&log, 1 << 30).expect("memory");
            assert_eq!(lines[0], (b"first".to_vec(), true));
            assert_eq!(
                (lines[1].0.len(), lines[1].1),
                (LINE_BYTES_MAX, extra == 0),
                "{extra}"
            );
            let after = if ending.contains("short") {
                whole(&["short"])
            } else {
                Vec::new()
            };
            assert_eq!(lines[2..], after, "{extra} {ending:?}");
        }
    }
}

#[test]
fn a_folder_is_no_log() {
    let folder = Log::from_arg(Path::new("/"));
    assert!(folder.open().is_err());
    assert_eq!(Log::from_arg(Path::new("-")), Log::Stdin);
}
