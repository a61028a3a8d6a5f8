use super::asking::Asking;
use super::*;
use crate::{Timestamp, Whole};

const TERMS: LoanTerms = LoanTerms {
    window: Micros::from_secs(60),
    time: Micros::from_secs(600),
    margin: Micros::from_secs(60),
};

/// The whole of what two regions own.
const WHOLE: Whole = Whole {
    quota: 400,
    burst: 400,
};

/// A lender that is idle in window 100, and never lends a tenth of the 200 that it owns.
const IDLE: WindowFacts = WindowFacts {
    window: 100,
    count: 0,
    need_now: 0,
    need_next: 0,
    floor: 20,
    windows: 10,
};

fn two_of_200() -> [WindowLoans; 2] {
    [0, 1].map(|_| WindowLoans::new(200, 2))
}

#[test]
fn a_loan_moves_a_share_before_it_is_used() {
    let [mut lender, mut borrower] = two_of_200();
    let ask = borrower.ask(0, 100, (300, 300));
    let answer = lender.lend(1, &ask, &IDLE).expect("the first ask");
    // Half of what is left above the floor, now and in ten windows after.
    let wanted = WindowHeld {
        first: 100,
        now: 90,
        next: 90,
        last: 110,
    };
    assert_eq!((answer.held, answer.spare), (wanted, 90));
    assert_eq!(
        [99, 100, 110, 111].map(|window| lender.share(window)),
        [200, 110, 110, 200]
    );
    assert_eq!(
        borrower.share(100),
        200,
        "nothing is held before the answer is there"
    );
    assert!(borrower.accept(0, &answer));
    assert_eq!(
        [99, 100, 110, 111].map(|window| borrower.share(window)),
        [200, 290, 290, 200]
    );
}

#[test]
fn a_repeated_ask_gets_the_same_answer_and_an_old_one_none() {
    let [mut lender, mut borrower] = two_of_200();
    let first = borrower.ask(0, 100, (0, 50));
    let second = borrower.ask(0, 100, (0, 50));
    let answer = lender.lend(1, &second, &IDLE);
    assert_eq!(lender.lend(1, &second, &IDLE), answer);
    assert_eq!(lender.lent(101), 50, "it is given once");
    assert_eq!(
        lender.lend(1, &first, &IDLE),
        Err(RefusedAsk::Old { last: 2 })
    );
    let late = WindowAnswer {
        number: 1,
        ..answer.expect("the latest ask")
    };
    assert!(!borrower.accept(0, &late), "an answer to an older ask");
}

#[test]
fn a_region_that_claims_what_it_never_had_gets_none_of_it() {
    let mut lender = WindowLoans::new(200, 2);
    let lie = WindowAsk {
        number: 7,
        first: 100,
        hold_now: u64::MAX,
        hold_next: u64::MAX,
        want_now: u64::MAX,
        want_next: u64::MAX,
    };
    let answer = lender.lend(1, &lie, &IDLE).expect("the first ask");
    assert_eq!((answer.held.now, answer.held.next), (90, 90));
    // However often it asks, the floor stays.
    for number in 8..100 {
        let answer = lender
            .lend(1, &WindowAsk { number, ..lie }, &IDLE)
            .expect("later asks");
        assert!(answer.held.next <= 180);
    }
    assert!([100, 101].iter().all(|window| lender.share(*window) >= 20));
    assert!(
        lender.peers[1].lent.pieces.len() <= 3,
        "what is kept does not grow"
    );
}

#[test]
fn clocks_more_than_a_window_apart_lend_nothing() {
    for first in [0, 98, 102, u64::MAX] {
        let mut lender = WindowLoans::new(200, 2);
        let ask = WindowAsk {
            number: 1,
            first,
            hold_now: 0,
            hold_next: 0,
            want_now: 9,
            want_next: 9,
        };
        assert_eq!(
            lender.lend(1, &ask, &IDLE),
            Err(RefusedAsk::Apart),
            "{first}"
        );
        assert_eq!(lender, WindowLoans::new(200, 2));
    }
    // One window behind: the asker's next window is in use here, so only what is left in it is given.
    let mut lender = WindowLoans::new(200, 2);
    let ask = WindowAsk {
        number: 1,
        first: 99,
        hold_now: 0,
        hold_next: 0,
        want_now: 9,
        want_next: 99,
    };
    let busy = WindowFacts { count: 195, ..IDLE };
    let answer = lender.lend(1, &ask, &busy).expect("the first ask");
    assert_eq!((answer.held.now, answer.held.next), (0, 5));
}

#[test]
fn only_what_is_not_used_is_given_back_in_this_window() {
    let [mut lender, mut borrower] = two_of_200();
    let ask = borrower.ask(0, 100, (300, 300));
    let answer = lender.lend(1, &ask, &IDLE).expect("the first ask");
    borrower.accept(0, &answer);
    borrower.release(0, 90, (100, 280));
    assert_eq!([100, 101].map(|window| borrower.share(window)), [280, 200]);
    let ask = borrower.ask(0, 100, (0, 0));
    lender.lend(1, &ask, &IDLE).expect("a later ask");
    assert_eq!([100, 101].map(|window| lender.share(window)), [120, 200]);
}

#[test]
fn a_loan_is_used_until_its_time_since_the_ask_is_over() {
    let usable = Micros::new(600_000_000 - 600_000);
    assert_eq!(TERMS.usable(Micros::ZERO), Some(usable));
    assert_eq!(
        TERMS.usable(Micros::new(usable.get() - 1)),
        Some(Micros::new(1))
    );
    assert_eq!(TERMS.usable(usable), None);
    assert_eq!(TERMS.usable(Micros::MAX), None);
    assert_eq!(TERMS.windows(), 10);
    let mut borrower = TimedLoans::new(200, 2);
    let now = Timestamp::from_secs(1_000);
    let ask = borrower.ask(0, 100, None, now);
    let answer = TimedAnswer {
        number: ask.number,
        amount: 50,
        tokens: 0,
        spare: 0,
    };
    assert!(borrower.accept(0, &answer, (Micros::ZERO, &TERMS), (now, 3)));
    let end = now.after(usable);
    let before = Timestamp::from_micros(end.as_micros() - 1);
    assert_eq!(
        (borrower.over(before, 3), borrower.over(end, 3)),
        (None, Some((0, end)))
    );
    assert_eq!(
        borrower.over(before, 4),
        Some((0, before)),
        "another generation knows no end"
    );
    borrower.drop_held(0, end);
    assert_eq!(borrower.share(), 200);
    // What was held then still counts in a log, for a window.
    let hold = |now| borrower.clone().ask(0, 0, Some(TERMS.window), now).hold;
    assert_eq!([end, end.after(TERMS.window)].map(hold), [50, 0]);
}

#[test]
fn tokens_go_along_with_a_bucket_s_share_and_a_log_keeps_what_it_counts() {
    let facts = |used| TimedFacts {
        used,
        need: 0,
        floor: 20,
    };
    let lend = |used| {
        let ask = TimedAsk {
            number: 1,
            hold: 500,
            want: 500,
            taken: Some(0),
        };
        TimedLoans::new(200, 2)
            .lend(1, &ask, &facts(used))
            .expect("the first ask")
            .answer
    };
    let bucket = lend(TimedUse::Bucket(41, WHOLE));
    assert_eq!((bucket.amount, bucket.tokens), (90, 18));
    let log = lend(TimedUse::Log(150));
    assert_eq!((log.amount, log.tokens), (50, 0));
    assert_eq!(lend(TimedUse::Log(300)).amount, 0);
}

#[test]
fn what_is_taken_back_is_what_the_number_says() {
    let mut lender = TimedLoans::new(200, 2);
    let facts = TimedFacts {
        used: TimedUse::Log(0),
        need: 0,
        floor: 0,
    };
    let ask = TimedAsk {
        number: 4,
        hold: 0,
        want: 60,
        taken: Some(0),
    };
    lender.lend(1, &ask, &facts).expect("the first ask");
    assert!(!lender.regain(1, 3));
    assert_eq!(lender.share(), 140);
    assert!(lender.regain(1, 4));
    assert_eq!(lender.share(), 200);
    // An ask that was under way tells of what is no longer lent.
    let late = TimedAsk {
        number: 5,
        hold: 60,
        want: 0,
        taken: Some(4),
    };
    assert_eq!(
        lender
            .lend(1, &late, &facts)
            .map(|reply| reply.answer.amount),
        Ok(0)
    );
}

/// A bucket of 200 of 400, of which the level is kept apart from its loans.
struct Bucket {
    loans: TimedLoans,
    level: u64,
}

impl Bucket {
    fn full() -> Self {
        Self {
            loans: TimedLoans::new(200, 2),
            level: 200,
        }
    }

    fn ask(&mut self, want: u64) -> TimedAsk {
        self.loans.ask(0, want, None, Timestamp::from_secs(1_000))
    }

    fn lend(&mut self, ask: &TimedAsk) -> TimedAnswer {
        let facts = TimedFacts {
            used: TimedUse::Bucket(self.level, WHOLE),
            need: 0,
            floor: 0,
        };
        let reply = self.loans.lend(0, ask, &facts).expect("a later ask");
        let level = self.level.cast_signed() - reply.leaving;
        self.level = level.unsigned_abs().min(self.loans.share());
        reply.answer
    }

    fn accept(&mut self, answer: &TimedAnswer) -> bool {
        let now = (Timestamp::from_secs(1_000), 3);
        let is_taken = self.loans.accept(0, answer, (Micros::ZERO, &TERMS), now);
        self.level += if is_taken { answer.tokens } else { 0 };
        is_taken
    }
}

#[test]
fn tokens_of_an_answer_that_was_never_taken_come_back_once() {
    let (mut lender, mut borrower) = (Bucket::full(), Bucket::full());
    borrower.level = 0;
    // The answers to two asks are lost; or come when another node has asked already.
    let lost = [(); 2].map(|()| lender.lend(&borrower.ask(100)));
    assert_eq!(
        lost.map(|answer| (answer.amount, answer.tokens)),
        [(100, 100); 2]
    );
    assert_eq!(lender.level, 100, "one hundred are under way");
    let ask = borrower.ask(100);
    assert_eq!(lost.map(|late| borrower.accept(&late)), [false; 2]);
    let answer = lender.lend(&ask);
    assert!(borrower.accept(&answer));
    assert!(!borrower.accept(&answer), "it is taken once");
    assert_eq!((lender.level, borrower.level), (100, 100));
    // What was taken stays there, whatever comes next.
    for _ in 0..2 {
        let answer = lender.lend(&borrower.ask(0));
        borrower.accept(&answer);
        assert_eq!((answer.tokens, lender.level, borrower.level), (0, 100, 100));
    }
}

#[test]
fn tokens_come_back_only_if_it_is_known_that_they_were_not_taken() {
    let after = |make: fn(&mut TimedAsk)| {
        let (mut lender, mut borrower) = (Bucket::full(), Bucket::full());
        lender.lend(&borrower.ask(100));
        let mut ask = borrower.ask(0);
        make(&mut ask);
        lender.lend(&ask);
        lender.level
    };
    assert_eq!(after(|_| {}), 200);
    assert_eq!(after(|ask| ask.taken = Some(1)), 100);
    // As nodes of earlier builds ask, and those whose store has lost what it knew.
    assert_eq!(after(|ask| ask.taken = None), 100);
    let mut forgetful = Bucket::full();
    forgetful.loans.asked_before(0, 7);
    let ask = forgetful.ask(0);
    assert_eq!((ask.number, ask.taken), (8, None));
}

#[test]
fn tokens_come_back_no_more_once_the_bucket_may_have_filled_up() {
    let (mut lender, mut borrower) = (Bucket::full(), Bucket::full());
    lender.lend(&borrower.ask(100));
    assert!(lender.loans.regain(0, 1));
    lender.level = 0;
    lender.lend(&borrower.ask(0));
    assert_eq!(lender.level, 0, "it has been full since");
    // Nor more than the bucket holds.
    let (mut lender, mut borrower) = (Bucket::full(), Bucket::full());
    lender.lend(&borrower.ask(100));
    let later = TimedAsk {
        hold: 60,
        ..borrower.ask(0)
    };
    lender.lend(&later);
    assert_eq!(lender.level, 140, "sixty of its share are away");
}

#[test]
fn an_ask_waits_for_its_answer_and_backs_off_while_none_gives_anything() {
    let times = AskingTimes {
        interval: Micros::from_millis(100),
        backoff_max: Micros::from_millis(300),
        soon: Micros::from_millis(150),
        timeout: Micros::from_secs(1),
    };
    let at = Micros::from_millis;
    let mut asking = Asking::new(&times);
    assert!(asking.may_ask(at(1), false, &times));
    asking.sent(1, at(1));
    assert!(!asking.may_ask(at(900), true, &times));
    assert_eq!((asking.sent_at(1), asking.sent_at(2)), (Some(at(1)), None));
    asking.answered(at(1_000), false, &times);
    // 200 ms for later windows, 150 ms for the one in use.
    assert_eq!(
        [1_149, 1_150].map(|ms| asking.may_ask(at(ms), true, &times)),
        [false, true]
    );
    assert_eq!(
        [1_199, 1_200].map(|ms| asking.may_ask(at(ms), false, &times)),
        [false, true]
    );
    asking.sent(2, at(1_200));
    assert!(
        !asking.may_ask(at(2_200), false, &times),
        "it is given up, and counts as nothing given"
    );
    assert_eq!(asking.sent_at(2), None);
    assert!(asking.may_ask(at(2_500), false, &times));
    asking.sent(3, at(2_500));
    asking.answered(at(2_600), true, &times);
    assert!(asking.may_ask(at(2_700), false, &times));
}
