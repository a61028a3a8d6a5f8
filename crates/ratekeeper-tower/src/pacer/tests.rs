use tokio::time::{advance, sleep_until};

use super::*;

/// Long enough that the thread is not involved: the clock is paused here.
const SPAN: Duration = Duration::from_millis(100);

fn bucket(number: u64) -> CounterKey {
    CounterKey {
        subject: number,
        identity: 0,
    }
}

/// Waits for turn number `turn` from `start` on; returns the departure.
fn leaves(
    pacer: &Arc<Pacer>,
    start: Instant,
    turn: u32,
) -> impl Future<Output = Instant> + Send + 'static {
    let paced = Paced::new(pacer, Some(bucket(1)), start + turn * SPAN, SPAN);
    async {
        paced.await;
        Instant::now()
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_behind_a_late_request_catches_up() {
    let pacer = Arc::default();
    let start = Instant::now();
    // The first task of the line is not polled before 190 ms have passed.
    let first = leaves(&pacer, start, 1);
    let others = (2..30).map(|turn| tokio::spawn(leaves(&pacer, start, turn)));
    let others: Vec<_> = others.collect();
    let first = tokio::spawn(async {
        sleep_until(Instant::now() + SPAN * 19 / 10).await;
        first.await
    });
    let mut left = vec![first.await.expect("it leaves")];
    for other in others {
        left.push(other.await.expect("it leaves"));
    }
    left.sort();
    for pair in left.windows(2) {
        let apart = pair[1] - pair[0];
        assert!(apart >= SPAN * KEPT_PERCENT / 100, "{left:?}");
    }
    // By then the delay has been made up for.
    let tick = Duration::from_millis(1);
    assert!(left[28] <= start + 29 * SPAN + tick, "{left:?}");
    assert!(pacer.0.lock().by_bucket.is_empty());
}

#[test]
fn the_later_the_line_the_less_of_their_distance_they_keep() {
    let most = SPAN * KEPT_PERCENT / 100;
    assert_eq!(kept(SPAN, Duration::ZERO), most);
    assert_eq!(kept(SPAN, SPAN), most);
    assert_eq!(kept(SPAN, 4 * SPAN), most / 4);
    // Timers are late by more than a short turn.
    let short = SPAN / 100;
    assert_eq!(kept(short, 4 * short), short * KEPT_PERCENT / 100);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_does_not_block_the_line() {
    let pacer = Arc::default();
    let start = Instant::now();
    let first = Box::pin(leaves(&pacer, start, 1));
    let second = tokio::spawn(leaves(&pacer, start, 2));
    tokio::task::yield_now().await;
    drop(first);
    let left = second.await.expect("it leaves");
    assert!(left < start + 2 * SPAN + PATIENCE, "{:?}", left - start);
}

#[tokio::test(start_paused = true)]
async fn a_stuck_request_blocks_the_line_for_a_bounded_time() {
    let pacer = Arc::default();
    let start = Instant::now();
    let stuck = leaves(&pacer, start, 1);
    let second = tokio::spawn(leaves(&pacer, start, 2));
    let left = second.await.expect("it leaves");
    assert!(left < start + 4 * SPAN, "{:?}", left - start);
    assert!(stuck.await < left + SPAN);
}

#[tokio::test(start_paused = true)]
async fn empty_lines_are_forgotten() {
    let pacer: Arc<Pacer> = Arc::default();
    let turn = Instant::now();
    // All leave late, which is remembered until it no longer matters.
    advance(3 * SPAN / 2).await;
    for number in 0..10_000 {
        Paced::new(&pacer, Some(bucket(number)), turn, SPAN).await;
        advance(SPAN / 10).await;
    }
    assert!(pacer.0.lock().by_bucket.len() <= SWEPT_FROM);
}
