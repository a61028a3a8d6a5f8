//! A cache of policies serialized as structured fields.

use std::cell::RefCell;

use sfv::{Integer, ItemSerializer, KeyRef, StringRef};

use super::Quota;

/// The largest integer of a structured field (RFC 9651, section 3.3.1).
pub(super) const INTEGER_MAX: u64 = 999_999_999_999_999;

/// The most policies cached by a thread; a power of two.
const PLACES: usize = 64;

thread_local! {
    /// Rules have few policies, and each is serialized alike for every request: it is cached in the
    /// slot for its name and size, until another policy needs that slot.
    static KEPT: RefCell<[Option<Written>; PLACES]> =
        const { RefCell::new([const { None }; PLACES]) };
}

/// A serialized policy.
pub(super) struct Written {
    quota: Quota<'static>,
    /// The name alone.
    pub(super) name: String,
    /// A member of `RateLimit-Policy`: the name, the quota and the window.
    pub(super) member: String,
}

/// Calls `read` with the serialized `quota`.
pub(super) fn with_written(quota: &Quota<'_>, read: impl FnOnce(&Written)) {
    KEPT.with_borrow_mut(|kept| {
        let place = &mut kept[place_of(quota)];
        if place.as_ref().is_some_and(|other| other.quota != *quota) {
            *place = None;
        }
        read(place.get_or_insert_with(|| Written::new(quota)));
    });
}

fn place_of(quota: &Quota<'_>) -> usize {
    let window = quota.window.map_or(0, |window| window.get());
    let mix = |mixed: u64, byte| mixed.rotate_left(5) ^ u64::from(byte);
    let mixed = quota.name.bytes().fold(quota.limit ^ window, mix);
    // The highest bits of the product depend on all input bits.
    let spread = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - PLACES.ilog2());
    usize::try_from(spread).unwrap_or_default()
}

impl Written {
    fn new(quota: &Quota<'_>) -> Self {
        // Names are printable ASCII, which a string may contain.
        let name = StringRef::from_str(&quota.name).unwrap_or_else(|_| StringRef::constant(""));
        let mut item = ItemSerializer::new()
            .bare_item(name)
            .parameter(key("q"), integer(quota.limit));
        if quota.is_concurrency {
            item = item.parameter(key("qu"), StringRef::constant("concurrent-requests"));
        }
        // A window is in whole seconds in this header; any other is left out rather than rounded.
        let micros = quota.window.map_or(0, |window| window.get());
        if micros >= 1_000_000 && micros.is_multiple_of(1_000_000) {
            item = item.parameter(key("w"), integer(micros / 1_000_000));
        }
        Self {
            name: ItemSerializer::new().bare_item(name).finish(),
            member: item.finish(),
            quota: Quota {
                name: quota.name.clone().into_owned().into(),
                ..*quota
            },
        }
    }
}

fn integer(value: u64) -> Integer {
    let value = i64::try_from(value.min(INTEGER_MAX)).unwrap_or(i64::MAX);
    Integer::try_from(value).unwrap_or(Integer::MAX)
}

fn key(name: &'static str) -> &'static KeyRef {
    KeyRef::constant(name)
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::Micros;

    use super::*;

    fn member(quota: &Quota<'_>) -> String {
        let mut member = String::new();
        with_written(quota, |written| {
            assert!(written.member.starts_with(&written.name));
            member.clone_from(&written.member);
        });
        member
    }

    #[test]
    fn a_policy_that_changes_is_rewritten() {
        let mut quota = Quota::named("a \"name\"", 7);
        assert_eq!(member(&quota), r#""a \"name\"";q=7"#);
        quota.window = Some(Micros::from_secs(60));
        assert_eq!(member(&quota), r#""a \"name\"";q=7;w=60"#);
        quota.window = Some(Micros::new(1_500_000));
        assert_eq!(member(&quota), r#""a \"name\"";q=7"#);
        quota.is_concurrency = true;
        assert_eq!(
            member(&quota),
            r#""a \"name\"";q=7;qu="concurrent-requests""#
        );
    }

    #[test]
    fn many_policies_do_not_take_each_others_words() {
        let names: Vec<String> = (0..4 * PLACES).map(|n| format!("rule-{n}")).collect();
        for _ in 0..2 {
            for (name, limit) in names.iter().zip(0..) {
                let written = member(&Quota::named(name, limit));
                assert_eq!(written, format!("\"{name}\";q={limit}"));
            }
        }
    }
}
