//! How the answers of a request's limits become one.

/// One step's say in the combined answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vote {
    /// Whether the hits fitted this limit.
    pub fits: bool,
    /// Which descriptor of the request the limit belongs to; never decreases.
    pub descriptor: u16,
    /// Counted, but never a reason to deny.
    pub shadow: bool,
    /// Denies only together with every other quota-mode descriptor.
    pub quota_mode: bool,
}

/// What bears on the combined answer besides the votes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mode {
    /// Every request is allowed, whatever its limits say (the incumbent's `SHADOW_MODE`).
    pub shadow: bool,
    /// Whether a descriptor without any step counts as a quota-mode one that fits
    /// (under the incumbent's global `QUOTA_MODE` even an unmatched descriptor does).
    pub idle_quota: bool,
    /// Whether these votes are but a part of the request's, and another part has denied it.
    pub denied: bool,
}

/// Whether the request is allowed: denied if any enforced limit denies; limits in quota mode
/// deny only if every quota-mode descriptor of the request is over (the incumbent's rule).
pub fn combine(votes: impl IntoIterator<Item = Vote>, mode: Mode) -> bool {
    if mode.shadow || mode.denied {
        return mode.shadow;
    }
    let mut quota = Quota::default();
    for vote in votes {
        if vote.quota_mode {
            quota.add(vote);
        } else if vote.is_over() {
            return false;
        }
    }
    !quota.denies(mode)
}

/// Whether the limits in quota mode are a reason to deny, whatever the others say.
pub fn quota_denies(votes: impl IntoIterator<Item = Vote>, mode: Mode) -> bool {
    let mut quota = Quota::default();
    votes
        .into_iter()
        .filter(|vote| vote.quota_mode)
        .for_each(|vote| quota.add(vote));
    !mode.shadow && quota.denies(mode)
}

impl Vote {
    const fn is_over(self) -> bool {
        !self.fits && !self.shadow
    }
}

/// The quota-mode descriptors of a request, of which those with several limits count once.
#[derive(Default)]
struct Quota {
    descriptors: u32,
    over: u32,
    last: Option<(u16, bool)>,
}

impl Quota {
    fn add(&mut self, vote: Vote) {
        let seen = self
            .last
            .filter(|(descriptor, _)| *descriptor == vote.descriptor);
        self.descriptors += u32::from(seen.is_none());
        let was_over = seen.is_some_and(|(_, over)| over);
        self.over += u32::from(vote.is_over() && !was_over);
        self.last = Some((vote.descriptor, vote.is_over() || was_over));
    }

    const fn denies(&self, mode: Mode) -> bool {
        self.over > 0 && self.over == self.descriptors && !mode.idle_quota
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vote(descriptor: u16, fits: bool) -> Vote {
        Vote {
            fits,
            descriptor,
            shadow: false,
            quota_mode: false,
        }
    }

    fn quota(descriptor: u16, fits: bool) -> Vote {
        Vote {
            quota_mode: true,
            ..vote(descriptor, fits)
        }
    }

    #[test]
    fn any_enforced_denial_denies_and_shadow_never_does() {
        assert!(combine([], Mode::default()));
        assert!(combine([vote(0, true), vote(1, true)], Mode::default()));
        assert!(!combine([vote(0, true), vote(1, false)], Mode::default()));
        let shadow = Vote {
            shadow: true,
            ..vote(1, false)
        };
        assert!(combine([vote(0, true), shadow], Mode::default()));
        assert!(combine(
            [vote(0, false)],
            Mode {
                shadow: true,
                ..Mode::default()
            }
        ));
    }

    #[test]
    fn quota_mode_denies_only_when_all_of_them_are_over() {
        assert!(!combine([quota(0, false)], Mode::default()));
        assert!(combine([quota(0, false), quota(1, true)], Mode::default()));
        assert!(!combine(
            [quota(0, false), quota(1, false)],
            Mode::default()
        ));
        assert!(!combine([quota(0, false), vote(1, true)], Mode::default()));
        assert!(!combine([quota(0, true), vote(1, false)], Mode::default()));
    }

    #[test]
    fn quota_mode_has_a_say_only_when_all_of_them_are_over() {
        let denies = |votes: &[Vote]| quota_denies(votes.iter().copied(), Mode::default());
        assert!(!denies(&[quota(0, false), quota(1, true), vote(2, false)]));
        assert!(denies(&[quota(0, false), quota(1, false), vote(2, false)]));
        assert!(!denies(&[vote(0, false)]));
    }

    #[test]
    fn a_descriptor_with_several_limits_has_one_quota_vote() {
        let one = [quota(0, true), quota(0, false), quota(0, true)];
        assert!(!combine(one, Mode::default()));
        assert!(combine(
            one,
            Mode {
                idle_quota: true,
                ..Mode::default()
            }
        ));
        assert!(combine(
            [quota(0, false), quota(0, false), quota(1, true)],
            Mode::default()
        ));
    }
}
