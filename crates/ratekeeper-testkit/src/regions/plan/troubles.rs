//! Worlds with trouble of one kind.

use ratekeeper_core::region::loans::LoanTerms;
use ratekeeper_core::{Micros, Regions};

use super::{Fault, Kind, RegionPlan, SECOND, shares};
use crate::random::Random;

impl RegionPlan {
    /// Makes it a log whose busy region is cut off, for longer than its loans last. Others become busy when those are over.
    pub(super) fn shift(&mut self, random: &mut Random) {
        let (count, time) = (self.regions(), random.within(800_000, 1_500_000));
        let window = random.pick(&[2, 5]) * SECOND;
        (self.kind, self.burst, self.hits) = (Kind::Log, self.limit, 1);
        (self.window, self.steps) = (window, false);
        self.terms = LoanTerms {
            window: Micros::new(window),
            time: Micros::new(time),
            margin: Micros::new(time / 10),
        };
        self.faults.clear();
        self.lease = self.lease.min(time / 40);
        let (busy, begin) = (
            self.any_region(random),
            random.within(3 * SECOND, 5 * SECOND),
        );
        let over = begin + time + time / 10;
        let heal = begin + random.within(time, 2 * time + window);
        let others = (0..count).filter(|other| *other != busy);
        let pairs: Vec<_> = others
            .flat_map(|other| [(busy, other), (other, busy)])
            .collect();
        self.faults.push((begin, Fault::Cut(pairs.clone())));
        self.faults.push((heal, Fault::Heal(pairs)));
        let rate = (3 * self.limit * 1_000 * SECOND / window).min(120_000);
        let only_busy = (0..count).map(|at| if at == busy { rate } else { 0 });
        self.traffic = vec![(over, only_busy.collect()), (self.span, vec![rate; count])];
    }

    /// Makes it a bucket whose busy region hears no answer, and then is cut off and asked for nothing, until what was lent to
    /// it is over and all buckets are full. The others are used up then, and all of them at once when it is back.
    pub(super) fn fall_silent(&mut self, random: &mut Random) {
        let (count, time) = (self.regions(), random.within(800_000, 1_500_000));
        self.limit = random.pick(&[150, 300]);
        self.shares = shares(random, self.limit, count);
        self.window = 5 * SECOND;
        (self.kind, self.burst, self.hits) = (Kind::Bucket, self.limit, 1);
        (self.floor, self.lease, self.steps) = (random.pick(&[0, 10]), 0, false);
        self.terms = LoanTerms {
            window: Micros::new(self.window),
            time: Micros::new(time),
            margin: Micros::new(time / 10),
        };
        self.faults.clear();
        let (busy, silent) = (self.any_region(random), 2 * SECOND);
        let (used, back) = (9 * SECOND, random.within(9_200_000, 10_000_000));
        let others = (0..count).filter(|other| *other != busy);
        let answers: Vec<_> = others.clone().map(|other| (other, busy)).collect();
        let asks: Vec<_> = others.map(|other| (busy, other)).collect();
        self.faults.push((0, Fault::Cut(answers.clone())));
        self.faults.push((silent, Fault::Cut(asks.clone())));
        self.faults.push((back, Fault::Heal(answers)));
        self.faults.push((back, Fault::Heal(asks)));
        let rates = |is_asked: fn(bool) -> bool| {
            let regions = 0..count;
            let rates = regions.map(|at| u64::from(is_asked(at == busy)) * 300_000);
            rates.collect()
        };
        self.traffic = vec![
            (silent, rates(|is_busy| is_busy)),
            (used, vec![0; count]),
            (back, rates(|is_busy| !is_busy)),
            (self.span, vec![300_000; count]),
        ];
    }

    /// Gives most of the limit to another region, of which all learn within a second.
    pub(super) fn change_weights(&mut self, random: &mut Random) {
        let count = self.regions();
        let heavy = self.any_region(random);
        let weights =
            (0..count).map(|at| (format!("r{at}").into(), if at == heavy { 9 } else { 1 }));
        let regions = Regions::try_new("r0", 2, weights).expect("regions with names and weights");
        self.new_shares = Some(regions.shares(self.limit));
        let at = random.within(2 * SECOND, 6 * SECOND);
        for region in 0..count {
            self.faults
                .push((at + random.below(SECOND), Fault::Learn(region)));
        }
    }
}
