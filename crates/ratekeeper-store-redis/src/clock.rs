//! Noticing that a server's clock goes back.
//!
//! Each answer of the script carries the server's time. A call's answer was made after the call was
//! sent, so its time is later than every time that had been heard by then, however long the answer
//! took. If it is earlier, the clock went back in between.
//!
//! ```text
//!   heard 12:00:20      send      answer says 12:00:01
//!   ------|--------------|-----------------|---------->   back by 19 s at least
//! ```

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ratekeeper_core::Timestamp;

/// Steps that are not worth telling: clocks of two servers differ by less, and counters keep the
/// later time.
const TOLERANCE_US: u64 = 1_000_000;

/// The time for which a step is reported after it was seen.
const TOLD: Duration = Duration::from_secs(10);

/// The server's time, as last heard.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<ClockState>);

/// A call's knowledge of the server's clock at the time it is sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// The latest time heard so far.
    latest: Timestamp,
    /// The number of steps back seen so far.
    steps: u64,
}

/// A step back that was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    seen: Instant,
    back: Duration,
}

#[derive(Debug, Default)]
struct ClockState {
    sent: Sent,
    step: Option<Step>,
}

impl ServerClock {
    /// The current knowledge of the clock, for a call that is about to be sent.
    pub(crate) fn sent(&self) -> Sent {
        self.0.lock().sent
    }

    /// Takes in `time` from the answer to a call that was `sent` with this knowledge. Returns by
    /// how much the clock went back, if that is news.
    pub(crate) fn observe(&self, sent: Sent, time: Timestamp, now: Instant) -> Option<Duration> {
        let mut heard = self.0.lock();
        if heard.sent.steps != sent.steps {
            // Sent before a step that is known: an answer from before it must not count as the time now.
            return None;
        }
        let back = sent.latest.as_micros().saturating_sub(time.as_micros());
        if back <= TOLERANCE_US {
            heard.sent.latest = heard.sent.latest.max(time);
            return None;
        }
        let back = Duration::from_micros(back);
        heard.sent = Sent {
            latest: time,
            steps: sent.steps + 1,
        };
        heard.step = Some(Step { seen: now, back });
        Some(back)
    }

    /// The server takes over the counters of another one: their time goes on from what that one said.
    pub(crate) fn succeed(&self, before: &Self) {
        // Not both locks at once: two may succeed each other at the same time.
        let latest = before.sent().latest;
        self.0.lock().sent.latest = latest;
    }

    /// The number of steps back seen.
    pub(crate) fn steps(&self) -> u64 {
        self.0.lock().sent.steps
    }

    /// The last step back, if it is still to be reported: by how much, and how long ago.
    pub(crate) fn step(&self, now: Instant) -> Option<(Duration, Duration)> {
        let Step { seen, back } = self.0.lock().step?;
        let ago = now.saturating_duration_since(seen);
        (ago < TOLD).then_some((back, ago))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn a_step_back_is_told_once_and_for_a_while() {
        let (clock, start) = (ServerClock::default(), Instant::now());
        assert_eq!(clock.observe(clock.sent(), at(100), start), None);
        let (one, other) = (clock.sent(), clock.sent());
        let back = Some(Duration::from_secs(20));
        assert_eq!(clock.observe(one, at(80), start), back);
        // Calls in flight at the same time saw the same step, or answers from before it.
        assert_eq!(clock.observe(other, at(80), start), None);
        assert_eq!(clock.observe(other, at(101), start), None);
        assert_eq!(clock.observe(clock.sent(), at(81), start), None);
        assert_eq!(clock.steps(), 1);
        assert_eq!(clock.step(start).map(|(back, _)| back), back);
        assert_eq!(clock.step(start + TOLD), None);
        assert_eq!(
            clock.observe(clock.sent(), at(60), start + TOLD),
            Some(Duration::from_secs(21))
        );
        assert_eq!(clock.steps(), 2);
    }

    /// A node that stood still reads an answer long after it was made.
    #[test]
    fn an_answer_that_is_read_late_is_no_step() {
        let (clock, start) = (ServerClock::default(), Instant::now());
        clock.observe(clock.sent(), at(100), start);
        let early = clock.sent();
        for second in 101..160 {
            assert_eq!(clock.observe(clock.sent(), at(second), start), None);
        }
        assert_eq!(clock.observe(early, at(101), start), None);
        assert_eq!(clock.observe(clock.sent(), at(160), start), None);
        assert_eq!(clock.steps(), 0);
    }

    #[test]
    fn small_steps_are_none() {
        let (clock, start) = (ServerClock::default(), Instant::now());
        clock.observe(clock.sent(), at(100), start);
        assert_eq!(clock.observe(clock.sent(), at(99), start), None);
        let just = Timestamp::from_micros(at(99).as_micros() - 1);
        assert!(clock.observe(clock.sent(), just, start).is_some());
    }

    #[test]
    fn a_successor_goes_on_from_the_time_of_the_one_before() {
        let (before, after, start) = (
            ServerClock::default(),
            ServerClock::default(),
            Instant::now(),
        );
        before.observe(before.sent(), at(100), start);
        after.succeed(&before);
        assert_eq!(
            after.observe(after.sent(), at(80), start),
            Some(Duration::from_secs(20))
        );
        assert_eq!(after.observe(after.sent(), at(90), start), None);
        // And back, which is a step forward.
        before.succeed(&after);
        assert_eq!(before.observe(before.sent(), at(110), start), None);
        assert_eq!((before.steps(), after.steps()), (0, 1));
    }
}
