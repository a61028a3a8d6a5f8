//! Combines the answers of a request's limits into one.

/// The answer of one step, as far as it affects the combined answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vote {
    /// True if the hits fitted this limit.
    pub fits: bool,
    /// The index of the limit's descriptor in the request; never decreases.
    pub descriptor: u16,
    /// Counts, but never denies.
    pub shadow: bool,
    /// Denies only if every other quota-mode descriptor is over its limit too.
    pub quota_mode: bool,
}

/// Inputs of the combined answer besides the votes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mode {
    /// Allows every request, whatever its limits answer.
    pub shadow: bool,
    /// Counts a descriptor without steps as a quota-mode descriptor that fits.
    pub idle_quota: bool,
    /// True if these votes are a part of the request's, and another part has denied it.
    pub denied: bool,
}

/// Returns true if the request is allowed. Any enforced limit can deny it, but limits in quota mode
/// deny only if every quota-mode descriptor of the request is over.
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

/// Returns true if the limits in quota mode deny, whatever the others answer.
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

/// The quota-mode descriptors of a request; one with several limits counts once.
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
