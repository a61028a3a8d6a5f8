//! The error of the windows against the exact log: the counted hits differ from those in the window
//! by at most the hits of one sub-window, the one that the window's far edge cuts.
//! (`equal_count.rs` has the sliding window without sub-windows.)

use ratekeeper_core::{Algorithm, Ask, Limit, LimitSpec, MAX_LOG, Micros, Moment, State};
use ratekeeper_testkit::model::history::History;

/// Hits with their times, oldest first.
struct Log(Vec<(u64, i128)>);

impl Log {
    fn came(&self, within: std::ops::Range<u64>) -> i128 {
        let hits = self.0.iter().filter(|(time, _)| within.contains(time));
        hits.map(|(_, hits)| *hits).sum()
    }
}

fn check(history: &History) {
    let limit = history.limit();
    if limit.algorithm() == Algorithm::SlidingWindow && limit.sub_windows() == 0 {
        return;
    }
    let parts = u64::from(limit.sub_windows().max(1));
    // The window as it is divided: k times a whole number of microseconds.
    let part = limit.window().get().div_ceil(parts);
    let window = part * parts;
    let mut state = State::new(limit.shape());
    let mut log = Log(Vec::new());
    history.play(|now, hits| {
        let hits = hits.max(0);
        let outcome = limit.step(&mut state, hits, &Moment::at(now));
        if outcome.fits() && hits > 0 {
            log.0.push((now.as_micros(), i128::from(hits)));
        }
        let peek = limit.test(state.as_ref(), Ask::hits(0), &Moment::at(now));
        let counted = i128::from(limit.quota()) - i128::from(peek.remaining);
        let now = now.as_micros();
        let truth = log.came((now + 1).saturating_sub(window)..now + 1);
        let cut = now.saturating_sub(window) / part * part;
        let of_one_part = log.came(cut..cut + part);
        // Beyond 2^53 hits times microseconds the carried part is rounded up a little more.
        let rounded = i128::from(limit.quota()) >> 49;
        assert!(
            (counted - truth).abs() <= of_one_part + rounded,
            "{counted} for {truth}"
        );
        outcome
    });
}

histories_hold! { check:
    fixed_window FixedWindow,
    sliding_window SlidingWindow,
}

/// With steady traffic a tenth over the limit, the number of decisions that differ from the log's,
/// each on its own admissions, shrinks with the number of sub-windows.
#[test]
fn more_sub_windows_are_closer_to_the_log() {
    let wrong = |sub_windows| {
        let quota = 100;
        let window = Micros::from_secs(60);
        let spec = LimitSpec::new(Algorithm::SlidingWindow, quota, window);
        let sliding = Limit::try_new(LimitSpec {
            sub_windows: Some(sub_windows),
            ..spec
        });
        let log = Limit::try_new(LimitSpec::new(Algorithm::SlidingLog, quota, window));
        let [sliding, log] = [sliding, log].map(|limit| limit.expect("a valid limit"));
        let mut states = [&sliding, &log].map(|limit| State::new(limit.shape()));
        // Bursts of 40 in a few seconds, every 22 seconds: 109 a minute.
        let arrivals = (0..MAX_LOG).map(|hit| 22 * (hit / 40) * 1_000_000 + (hit % 40) * 77_777);
        let differ = arrivals.filter(|micros| {
            let now = ratekeeper_core::Timestamp::from_micros(1_000_000_000_000 + micros);
            let by_window = sliding.step(&mut states[0], 1, &Moment::at(now)).fits();
            let by_log = log.step(&mut states[1], 1, &Moment::at(now)).fits();
            by_window != by_log
        });
        differ.count()
    };
    let [one, twelve, sixty] = [1, 12, 60].map(wrong);
    assert!(twelve < one, "{twelve} of 12, {one} of 1");
    assert!(sixty <= twelve, "{sixty} of 60, {twelve} of 12");
}
