//! Compression that is not read, told by its first bytes.

use std::io;

/// The first bytes that are looked at.
pub(super) const FIRST_BYTES: usize = 10;

/// A kind of compression, and the command that undoes it.
struct Kind {
    name: &'static str,
    command: &'static str,
    magic: &'static [u8],
}

const KINDS: [Kind; 6] = [
    kind("xz", "xz -dc", b"\xfd7zXZ\0"),
    // The digit of its level stands between.
    kind("bzip2", "bzip2 -dc", b"BZh"),
    kind("zstd", "zstd -dc", b"\x28\xb5\x2f\xfd"),
    kind("lz4", "lz4 -dc", b"\x04\x22\x4d\x18"),
    kind("zip", "unzip -p", b"PK\x03\x04"),
    kind("compress", "zcat", b"\x1f\x9d"),
];

const fn kind(name: &'static str, command: &'static str, magic: &'static [u8]) -> Kind {
    Kind {
        name,
        command,
        magic,
    }
}

/// Refuses what begins with bytes that no line of a log begins with.
pub(super) fn refuse(first: &[u8]) -> io::Result<()> {
    let is_it = |kind: &&Kind| {
        first.starts_with(kind.magic)
            && (kind.name != "bzip2" || first.get(4..FIRST_BYTES) == Some(b"1AY&SY"))
    };
    match KINDS.iter().find(is_it) {
        None => Ok(()),
        Some(Kind { name, command, .. }) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it is {name}: `{command} FILE | ratekeeper replay --log -` reads it"),
        )),
    }
}
