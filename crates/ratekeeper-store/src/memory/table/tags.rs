//! The first word of a bucket: a byte of each slot's hash, and one that counts passing counters.

#[expect(clippy::cast_possible_truncation, reason = "a byte of the word")]
#[inline]
pub(super) const fn tag_of(tags: u64, slot: usize) -> u8 {
    (tags >> (8 * slot)) as u8
}

#[inline]
pub(super) const fn overflow(tags: u64) -> u64 {
    tags >> 56
}

/// Counts one more passing counter. At 255 the count is lost and stays: searches then go further
/// than necessary.
pub(super) const fn overflow_more(tags: u64) -> u64 {
    if overflow(tags) == 255 {
        tags
    } else {
        tags + (1 << 56)
    }
}

pub(super) const fn overflow_less(tags: u64) -> u64 {
    match overflow(tags) {
        0 | 255 => tags,
        _ => tags - (1 << 56),
    }
}

/// The slots whose tag equals `tag`, with occasional false positives: a byte is zero where they are
/// equal, and a borrow finds it (Mycroft's trick), sometimes spilling into the next. The first one
/// is always right.
#[inline]
pub(super) fn matches(tags: u64, tag: u8) -> impl Iterator<Item = usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x0080_8080_8080_8080;
    let differ = tags ^ (ONES * u64::from(tag));
    let mut hits = differ.wrapping_sub(ONES) & !differ & TOPS;
    std::iter::from_fn(move || {
        if hits == 0 {
            return None;
        }
        let slot = hits.trailing_zeros() as usize / 8;
        hits &= hits - 1;
        Some(slot)
    })
}
