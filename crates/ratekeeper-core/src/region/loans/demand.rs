//! The hits that a region needs. No proof depends on this.

/// The hits to provide for where `expected` are expected: a tenth more, and twice the deviation of random arrivals.
#[must_use]
pub const fn forecast(expected: u64) -> u64 {
    let deviation = expected.isqrt();
    expected
        .saturating_add(expected / 10)
        .saturating_add(deviation.saturating_mul(2))
}

/// The hits to ask for in each later window where `need` is forecast and `share` is there. A lack of less than a fiftieth
/// of the share waits; hits are asked for with headroom.
#[must_use]
pub const fn lack(need: u64, share: u64) -> u64 {
    let missing = need.saturating_sub(share);
    if missing == 0 || missing < share / 50 {
        return 0;
    }
    missing.saturating_add(need.div_ceil(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_lacks_wait_and_others_are_asked_for_with_headroom() {
        assert_eq!(forecast(0), 0);
        assert_eq!(forecast(100), 130);
        assert_eq!(lack(100, 100), 0);
        assert_eq!(lack(1_010, 1_000), 0);
        assert_eq!(lack(1_020, 1_000), 20 + 102);
        assert_eq!(lack(u64::MAX, 0), u64::MAX);
    }
}
