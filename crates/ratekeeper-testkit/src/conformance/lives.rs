//! Counters that a store lets expire by itself: none before its hits no longer count, and none lasts for ever.

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros};
use ratekeeper_store::{Charge, PermitAct, Step, Store};

use super::permits::{acts, permits_for};
use super::{NOW, at, counted, every_budget, every_limit, name, taking};

/// The time for which a store still keeps a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// It keeps none.
    Gone,
    /// Until somebody deletes it.
    Endless,
    /// So long at least, and hardly longer.
    For(Micros),
}

impl Life {
    /// Returns true if it lasts for at least so long.
    fn reaches(self, span: Micros) -> bool {
        match self {
            Self::Gone => false,
            Self::Endless => true,
            Self::For(life) => life >= span,
        }
    }
}

/// The longest time for which a counter is kept that counts nothing: for clocks that tests tell.
const KEPT: Micros = Micros::from_secs(86_400);

/// Limits of every algorithm, and some that count for longer than a day.
fn limits() -> impl Iterator<Item = Limit> {
    let year = Micros::from_secs(365 * 86_400);
    let lasting = Algorithm::ALL
        .into_iter()
        .filter_map(move |algorithm| Limit::try_new(LimitSpec::new(algorithm, 5, year)).ok());
    every_limit(5).chain(every_budget(5)).chain(lasting)
}

/// A counter that is charged has a life, which ends when its hits no longer count: not before, and not long after.
pub fn a_counter_lives_for_as_long_as_it_counts<S, L>(make: impl Fn() -> (S, L))
where
    S: Store,
    L: Fn(&Step) -> Life,
{
    let (store, life) = make();
    for (number, limit) in (0..).zip(limits()) {
        let charge = match limit.is_post_paid() {
            true => Charge::Always,
            false => Charge::IfAllowed,
        };
        let all = Step {
            charge,
            ..taking(5, &limit, number)
        };
        let look = [Step { hits: 0, ..all }];
        at(&store, NOW, &look);
        assert_eq!(life(&all), Life::Gone, "{}: a look", name(&limit));
        let taken = at(&store, NOW, &[all]);
        let lasts = match limit.algorithm() {
            Algorithm::Concurrency => limit.window(),
            _ => counted(&taken, 0).full_after,
        };
        let found = life(&all);
        // By the store's clock, which may have gone on since.
        let looked = at(&store, NOW, &look);
        let left = taken.at.after(lasts).since(looked.at);
        assert!(
            found.reaches(left),
            "{found:?}, and {} counts for {left:?}",
            name(&limit)
        );
        let most = Micros::new(lasts.get() + KEPT.get());
        assert!(
            matches!(found, Life::For(life) if life <= most),
            "{found:?}, and {} counts for {lasts:?}",
            name(&limit)
        );
    }
}

/// A counter of permits with several timeouts lives until the last of them ends, whatever is done with the others.
pub fn a_counter_lives_until_its_last_permit_ends<S, L>(make: impl Fn() -> (S, L))
where
    S: Store,
    L: Fn(&Step) -> Life,
{
    let (store, life) = make();
    // Longer than any counter is kept in vain.
    let [long, short] = [3 * KEPT.get(), 60_000_000].map(|it| permits_for(3, Micros::new(it)));
    let others = [
        (PermitAct::Acquire, 2, 1),
        (PermitAct::Renew, 2, 0),
        (PermitAct::Renew, 3, 0),
        (PermitAct::Renew, 1, 0),
        (PermitAct::Release, 2, 0),
    ];
    for (number, (act, id, hits)) in (0..).zip(others) {
        let [long, short] = [&long, &short].map(|limit| taking(1, limit, number));
        let taken = acts(&store, NOW, (PermitAct::Acquire, 1), &[long]);
        let until = taken.at.after(long.limit.window());
        acts(&store, NOW, (act, id), &[Step { hits, ..short }]);
        let found = life(&long);
        let looked = at(&store, NOW, &[Step { hits: 0, ..long }]);
        let left = until.since(looked.at);
        assert!(found.reaches(left), "{found:?} of {left:?}: {act:?} {id}");
    }
    // A permit without an id.
    let [long, short] = [&long, &short].map(|limit| taking(1, limit, 100));
    let taken = at(&store, NOW, &[long]);
    at(&store, NOW, &[short]);
    let found = life(&long);
    let looked = at(&store, NOW, &[Step { hits: 0, ..long }]);
    let left = taken.at.after(long.limit.window()).since(looked.at);
    assert!(found.reaches(left), "{found:?} of {left:?}");
}
