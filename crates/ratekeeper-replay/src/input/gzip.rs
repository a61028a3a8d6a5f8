//! Gzip as `zcat` reads it: several members, with whatever follows the last of them left out.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// The first bytes of a member.
pub(super) const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Decompresses the members of a source, one after the other.
pub(super) struct Gunzip<R> {
    /// None behind the last one.
    member: Option<GzDecoder<R>>,
    has_garbage: bool,
}

impl<R: BufRead> Gunzip<R> {
    pub(super) fn new(source: R) -> Self {
        Self {
            member: Some(GzDecoder::new(source)),
            has_garbage: false,
        }
    }

    /// True if bytes that are no gzip followed, and were left out. Zeros are padding, and none of them.
    pub(super) const fn has_garbage(&self) -> bool {
        self.has_garbage
    }

    /// The source, at the next member, if there is one.
    fn next_member(&mut self, mut source: R) -> io::Result<Option<R>> {
        loop {
            let bytes = match source.fill_buf() {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            let rest = &bytes[zeros..];
            if rest.starts_with(&MAGIC) || rest == &MAGIC[..1] {
                source.consume(zeros);
                return Ok(Some(source));
            }
            if !rest.is_empty() || bytes.is_empty() {
                self.has_garbage = !rest.is_empty();
                return Ok(None);
            }
            source.consume(zeros);
        }
    }
}

impl<R: BufRead> Read for Gunzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(member) = &mut self.member else {
                return Ok(0);
            };
            let count = member.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            if let Some(ended) = self.member.take() {
                self.member = self.next_member(ended.into_inner())?.map(GzDecoder::new);
            }
        }
    }
}
