use proptest::collection::vec;
use proptest::prelude::*;

use super::super::PeerStanding;
use super::*;

/// A region that owns 200 of 600, with two others that own as much.
#[derive(Debug)]
struct Look {
    needs: LoanNeeds,
    standing: LoanStanding,
    has_windows: bool,
    regions: Vec<PeerLook>,
}

const TIMES: AskingTimes = AskingTimes {
    interval: Micros::from_secs(1),
    backoff_max: Micros::from_secs(10),
    soon: Micros::from_secs(5),
    timeout: Micros::from_secs(3),
};

impl Look {
    /// Without loans, and with so many needed.
    fn needing(now: u64, next: u64) -> Self {
        Self {
            needs: LoanNeeds { now, next },
            standing: LoanStanding {
                owns: 200,
                now: 200,
                next: 200,
                peers: vec![PeerStanding::default(); 3],
            },
            has_windows: true,
            regions: [false, true, true]
                .map(|is_reachable| PeerLook {
                    owns: 200,
                    is_reachable,
                })
                .to_vec(),
        }
    }

    fn with(mut self, peer: usize, loan: PeerStanding) -> Self {
        let standing = &mut self.standing;
        standing.now = standing.now - loan.lent + loan.held;
        standing.next = standing.next - loan.lent_next + loan.held_next;
        standing.peers[peer] = loan;
        self
    }

    fn look(&self) -> LoanLook<'_> {
        LoanLook {
            needs: self.needs,
            standing: &self.standing,
            has_windows: self.has_windows,
            regions: &self.regions,
        }
    }

    fn asks(&self, asking: &mut LoanAsking, second: u64) -> Vec<WantedLoan> {
        asking.wanted(&self.look(), Micros::from_secs(second))
    }

    /// The asks of a node that has not asked yet.
    fn first_asks(&self) -> Vec<WantedLoan> {
        self.asks(&mut self.asking(), 100)
    }

    fn asking(&self) -> LoanAsking {
        LoanAsking::new(self.regions.len(), TIMES)
    }
}

const fn held(hits: u64, renews: bool) -> PeerStanding {
    PeerStanding {
        lent: 0,
        lent_next: 0,
        held: hits,
        held_next: hits,
        left: Micros::from_secs(200),
        renews,
    }
}

const fn lent(hits: u64) -> PeerStanding {
    PeerStanding {
        lent: hits,
        lent_next: hits,
        ..held(0, false)
    }
}

const fn ask(peer: usize, (now, next): (u64, u64)) -> WantedLoan {
    WantedLoan {
        peer,
        now,
        next,
        release: 0,
        recall: 0,
        recalled: 0,
    }
}

#[test]
fn who_needs_no_more_than_its_share_asks_for_nothing() {
    let look = Look::needing(200, 200);
    assert!(look.look().is_content());
    assert_eq!(look.first_asks(), []);
    let holds = Look::needing(200, 200).with(1, held(50, false));
    assert!(!holds.look().is_content());
    assert_eq!(holds.first_asks(), []);
}

#[test]
fn what_is_lacking_is_asked_of_all_by_what_they_could_spare() {
    // A tenth of the need is headroom, of the windows that come.
    let look = Look::needing(260, 300);
    assert_eq!(
        look.first_asks(),
        [ask(1, (30, 65)), ask(2, (30, 65))],
        "what they own is taken to be spare"
    );
    let mut asking = look.asking();
    for (peer, spare) in [(1, 9), (2, 89)] {
        asking.answered(peer, (spare, true), Micros::from_secs(90));
    }
    assert_eq!(
        look.asks(&mut asking, 100),
        [ask(1, (6, 13)), ask(2, (54, 117))]
    );
    let mut look = look;
    look.regions[2].is_reachable = false;
    assert_eq!(look.first_asks(), [ask(1, (60, 130))]);
    look.has_windows = false;
    assert_eq!(look.first_asks(), [ask(1, (0, 130))]);
}

#[test]
fn who_lent_its_own_asks_for_it_back() {
    // Of more than its own, which it needs, it lacks the rest.
    for (need, recall) in [(150, 20), (200, 70), (250, 70)] {
        let look = Look::needing(0, need).with(2, lent(70));
        let asks = look.first_asks().into_iter();
        let recalls: Vec<_> = asks.map(|it| (it.peer, it.recall)).collect();
        assert_eq!(recalls, [(1, 0), (2, recall)]);
    }
    let look = Look::needing(0, 130).with(2, lent(70));
    assert_eq!(look.first_asks(), []);
}

#[test]
fn a_loan_is_renewed_and_what_is_no_longer_needed_given_back() {
    let look = Look::needing(0, 300).with(2, held(100, true));
    assert_eq!(look.first_asks(), [ask(2, (0, 0))]);
    for (need, release) in [(270, 30), (100, 100)] {
        let look = Look::needing(0, need).with(2, held(100, true));
        let asks = look.first_asks();
        assert_eq!(asks.len(), 1, "{asks:?}");
        assert_eq!((asks[0].peer, asks[0].release), (2, release));
    }
    let early = Look::needing(0, 100).with(2, held(100, false));
    assert_eq!(early.first_asks(), []);
    let lacking = Look::needing(400, 100).with(2, held(100, true));
    let releases: Vec<_> = lacking.first_asks().iter().map(|it| it.release).collect();
    assert_eq!(releases, [0, 0]);
}

#[test]
fn what_is_no_longer_needed_is_given_back_once() {
    // 200 of its own, and 200 of others: 120 are too many.
    let look = Look::needing(0, 280)
        .with(1, held(100, true))
        .with(2, held(100, true));
    let releases: Vec<_> = look.first_asks().iter().map(|it| it.release).collect();
    assert_eq!(releases, [100, 20]);
}

#[test]
fn what_is_asked_back_is_given_and_no_more_asked_of_that_region() {
    let look = Look::needing(500, 500).with(1, held(100, false));
    let mut asking = look.asking();
    asking.recall(1, 40);
    assert!(asking.is_recalled());
    let asks = look.asks(&mut asking, 100);
    let given = WantedLoan {
        release: 40,
        recalled: 40,
        ..ask(1, (0, 0))
    };
    assert_eq!(asks[0], given);
    assert!(asks[1].next > 0, "{asks:?}");
    assert!(!asking.is_recalled(), "that is done");
    asking.unsent(&asks[0], Micros::from_secs(100));
    assert!(asking.is_recalled(), "or not");
    let again = look.asks(&mut asking, 110);
    assert_eq!(again[0], given);
}

/// The seconds at which a region that lacks `now` and `next` more is asked, none of which gives anything.
fn asked_at((now, next): (u64, u64), mut answer: impl FnMut(&mut LoanAsking, u64)) -> Vec<u64> {
    let look = Look::needing(200 + now, 200 + next);
    let mut asking = look.asking();
    let asked = (100..160).filter(|second| {
        let asks = look.asks(&mut asking, *second);
        if asks.is_empty() {
            return false;
        }
        answer(&mut asking, *second);
        true
    });
    asked.collect()
}

#[test]
fn asks_that_give_nothing_are_made_less_and_less_often() {
    let nothing = |asking: &mut LoanAsking, second| {
        for peer in [1, 2] {
            asking.answered(peer, (0, false), Micros::from_secs(second));
        }
    };
    assert_eq!(
        asked_at((0, 100), nothing),
        [100, 102, 106, 114, 124, 134, 144, 154]
    );
    // For this window a little more often.
    let asked = asked_at((100, 100), nothing);
    assert_eq!(asked[..6], [100, 102, 106, 111, 116, 121]);
}

#[test]
fn an_ask_that_is_not_answered_is_given_up() {
    let unanswered = |asking: &mut LoanAsking, second| {
        for peer in [1, 2] {
            asking.sent(peer, second, Micros::from_secs(second));
            assert_eq!(
                asking.sent_at(peer, second),
                Some(Micros::from_secs(second))
            );
            assert_eq!(asking.sent_at(peer, second + 1), None);
        }
    };
    let asked = asked_at((0, 100), unanswered);
    assert_eq!(asked[..4], [100, 105, 112, 123]);
}

prop_compose! {
    /// A region among up to five others, whose shares and loans are consistent.
    fn looks()(
        (owns, needs) in (0..500_u64, (0..2_000_u64, 0..2_000_u64)),
        has_windows: bool,
        peers in vec((0..500_u64, any::<bool>(), 0..100_u64, 0..300_u64, any::<bool>()), 1..6),
    ) -> Look {
        let mut look = Look {
            needs: LoanNeeds { now: needs.0, next: needs.1 },
            standing: LoanStanding { owns, now: owns, next: owns, peers: Vec::new() },
            has_windows,
            regions: Vec::new(),
        };
        let own = (owns, false, 0, 0, false);
        for (owns, is_reachable, gives, hits, renews) in peers.into_iter().chain([own]) {
            let given = gives.min(look.standing.next);
            look.regions.push(PeerLook { owns, is_reachable });
            look.standing.peers.push(PeerStanding::default());
            let peer = look.regions.len() - 1;
            let loan = match gives % 2 {
                0 => lent(given),
                _ => held(hits, renews && hits > 0),
            };
            look = look.with(peer, loan);
        }
        look
    }
}

proptest! {
    /// But for what is rounded up: a hit for each region.
    #[test]
    fn no_more_is_asked_for_than_is_lacking(look in looks()) {
        let asks = look.first_asks();
        let others = look.regions.len() as u64;
        let sum = |hits: fn(&WantedLoan) -> u64| asks.iter().map(hits).sum::<u64>();
        let lacks = look.needs.now.saturating_sub(look.standing.now);
        prop_assert!(sum(|it| it.now) < lacks + others);
        let lacks = look.needs.next.saturating_sub(look.standing.next);
        let headroom = if lacks > 0 { look.needs.next.div_ceil(10) } else { 0 };
        prop_assert!(sum(|it| it.next) < lacks + headroom + others);
        let whole: u64 = look.regions.iter().map(|it| it.owns).sum();
        prop_assert!(sum(|it| it.next) < whole + others);
        if !look.has_windows {
            prop_assert_eq!(sum(|it| it.now), 0);
        }
    }

    #[test]
    fn each_region_that_can_be_asked_is_asked_once_or_not_at_all(look in looks()) {
        let asks = look.first_asks();
        let places: Vec<_> = asks.iter().map(|it| it.peer).collect();
        prop_assert!(places.is_sorted_by(|one, other| one < other));
        for place in &places {
            prop_assert!(look.regions[*place].is_reachable);
        }
        prop_assert!(places.is_empty() || !look.look().is_content());
    }

    #[test]
    fn every_loan_whose_half_time_has_passed_is_renewed(look in looks()) {
        let asks = look.first_asks();
        for (place, region) in look.regions.iter().enumerate() {
            let is_asked = asks.iter().any(|it| it.peer == place);
            prop_assert!(is_asked || !look.standing.peers[place].renews || !region.is_reachable);
        }
    }

    #[test]
    fn what_is_given_back_is_not_needed(look in looks()) {
        let released: u64 = look.first_asks().iter().map(|it| it.release).sum();
        let needed = look.needs.next.max(look.standing.owns);
        prop_assert!(released == 0 || look.standing.next - released >= needed);
    }

    #[test]
    fn only_what_is_lent_and_needed_is_asked_back(look in looks()) {
        for ask in look.first_asks() {
            let needed = look.needs.next.min(look.standing.owns);
            prop_assert!(ask.recall <= needed.saturating_sub(look.standing.next));
            prop_assert!(ask.recall == 0 || look.standing.peers[ask.peer].lent_next > 0);
        }
    }
}
