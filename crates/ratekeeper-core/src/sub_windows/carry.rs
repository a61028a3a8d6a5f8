//! The share of the oldest sub-window's hits that still counts.

use super::cut::SubWindows;

/// Products below this are exact in a double.
const EXACT: u128 = 1 << 53;

/// The share of `oldest` hits that still counts `elapsed` microseconds into the current sub-window,
/// rounded up to a whole hit: oldest * (s - elapsed) / s.
///
/// A script with doubles only gets the same number from the same expression. While the product is
/// below 2^53, its quotient rounds to the true one's ceiling: a quotient q that is not whole is
/// above the next lower whole number by at least 1 / s, which is more than half a unit in the last
/// place of q, since q * s < 2^53. So integers may stand in for doubles there. Above, both
/// roundings together lose less than two parts in 2^52, and the quotient is nudged up by four, so
/// that rounding never admits more.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "only below 2^53")]
pub(crate) fn carried(sub: &SubWindows, oldest: u64, elapsed: u64) -> u64 {
    let inside = sub.length.get() - elapsed;
    let product = u128::from(oldest) * u128::from(inside);
    if product < EXACT {
        sub.length.quotient_up(product as u64)
    } else {
        nudged(oldest, inside, sub.length.get())
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "counts and times are below 2^53"
)]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "0 to 2^53"
)]
fn nudged(oldest: u64, inside: u64, length: u64) -> u64 {
    const NUDGE: f64 = 1.0 + 1.0 / (1_u64 << 50) as f64;
    let part = oldest as f64 * inside as f64 / length as f64 * NUDGE;
    (part.ceil() as u64).min(oldest)
}

/// The first moment of the current sub-window after `elapsed` at which at most `room` of the
/// `oldest` hits still count; more do at `elapsed`. None if there is no such moment in it.
pub(crate) fn first_fit(sub: &SubWindows, oldest: u64, room: u64, elapsed: u64) -> Option<u64> {
    let fits = |elapsed: u64| carried(sub, oldest, elapsed) <= room;
    let last = sub.length.get() - 1;
    if room == 0 || elapsed >= last {
        return None;
    }
    // Solve oldest * (s - e) / s <= room for e; doubles are close enough for a guess.
    let guess = guess(oldest, room, sub.length.get()).clamp(elapsed + 1, last);
    if fits(guess) && !fits(guess - 1) {
        return Some(guess);
    }
    if !fits(last) {
        return None;
    }
    // False at `low`, true at `high`: bisect.
    let (mut low, mut high) = (elapsed, last);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

/// Converts by way of signed integers, which a processor does in one instruction.
#[allow(clippy::cast_precision_loss, reason = "a guess")]
#[allow(
    clippy::cast_possible_wrap,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "all are below 2^53, and the room below the oldest hits"
)]
fn guess(oldest: u64, room: u64, length: u64) -> u64 {
    let [oldest, room, length] = [oldest, room, length].map(|number| number as i64);
    let inside = room as f64 * length as f64 / oldest as f64;
    length.saturating_sub(inside as i64) as u64
}
