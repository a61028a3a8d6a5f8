//! The keys of counters.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use smallvec::SmallVec;

/// A name of whom or what is limited: a text, a number, an address, or several of them.
///
/// Keys are hashed with a secret, however long they are, and never stored. An IPv6 address counts as its /64 network,
/// since one host usually has all of one; a [`SocketAddr`] counts as its address, without the port.
///
/// ```
/// use ratekeeper::{Limit, RateLimiter};
/// use std::net::{IpAddr, Ipv4Addr};
///
/// let limiter = RateLimiter::keyed(Limit::per_minute(1))?;
/// let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// assert!(limiter.check("ada").allowed);
/// assert!(limiter.check(42).allowed);
/// assert!(limiter.check(address).allowed);
/// assert!(limiter.check(("ada", address)).allowed);
/// assert!(!limiter.check("42").allowed, "the same text as 42");
/// # Ok::<(), ratekeeper::Error>(())
/// ```
///
/// A type of your own is a key by its text:
/// ```
/// use ratekeeper::Key;
///
/// struct Tenant { id: u64 }
///
/// impl Key for Tenant {
///     fn with_text<R>(&self, read: impl FnOnce(&str) -> R) -> R {
///         self.id.with_text(read)
///     }
/// }
/// assert_eq!(Tenant { id: 7 }.with_text(str::to_owned), "7");
/// ```
pub trait Key {
    /// Calls `read` with the text of the key. Different keys should have different texts.
    fn with_text<R>(&self, read: impl FnOnce(&str) -> R) -> R;
}

impl<K: Key + ?Sized> Key for &K {
    fn with_text<R>(&self, read: impl FnOnce(&str) -> R) -> R {
        (**self).with_text(read)
    }
}

/// Implements [`Key`] for types that are texts.
macro_rules! texts {
    ($($text:ty),*) => {$(
        impl Key for $text {
            fn with_text<R>(&self, read: impl FnOnce(&str) -> R) -> R {
                read(self)
            }
        }
    )*};
}

texts!(str, String, Box<str>, Arc<str>, Cow<'_, str>);

/// Implements [`Key`] for types that are written as texts.
macro_rules! written {
    ($($value:ty),*) => {$(
        impl Key for $value {
            fn with_text<R>(&self, read: impl FnOnce(&str) -> R) -> R {
                KeyText::of(format_args!("{self}"), read)
            }
        }
    )*};
}

written!(
    u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, bool, char, Ipv4Addr
);

impl Key for Ipv6Addr {
    fn with_text<R>(&self, read: impl FnOnce(&str) -> R) -> R {
        if let Some(address) = self.to_ipv4_mapped() {
            return address.with_text(read);
        }
        let [a, b, c, d, ..] = self.segments();
        let network = Self::new(a, b, c, d, 0, 0, 0, 0);
        KeyText::of(format_args!("{network}/64"), read)
    }
}

impl Key for IpAddr {
    fn with_text<R>(&self, read: impl FnOnce(&str) -> R) -> R {
        match self {
            Self::V4(address) => address.with_text(read),
            Self::V6(address) => address.with_text(read),
        }
    }
}

impl Key for SocketAddr {
    fn with_text<R>(&self, read: impl FnOnce(&str) -> R) -> R {
        self.ip().with_text(read)
    }
}

/// The parts of a key, each with its length before it, so that `("a", "bc")` differs from `("ab", "c")`.
macro_rules! tuples {
    ($($name:ident: $place:tt),*) => {
        impl<$($name: Key),*> Key for ($($name,)*) {
            fn with_text<R>(&self, read: impl FnOnce(&str) -> R) -> R {
                let mut text = KeyText::default();
                $(self.$place.with_text(|part| text.add(part));)*
                text.read(read)
            }
        }
    };
}

tuples!(A: 0, B: 1);
tuples!(A: 0, B: 1, C: 2);

/// A text that is usually short, and then allocates nothing.
#[derive(Default)]
pub(crate) struct KeyText(SmallVec<[u8; 64]>);

impl KeyText {
    fn of<R>(value: fmt::Arguments<'_>, read: impl FnOnce(&str) -> R) -> R {
        let mut text = Self::default();
        // Writing to memory does not fail.
        let _ = text.write_fmt(value);
        text.read(read)
    }

    /// Replaces the text.
    #[cfg(feature = "layer")]
    pub(crate) fn set(&mut self, text: &str) {
        self.0.clear();
        self.0.extend_from_slice(text.as_bytes());
    }

    fn add(&mut self, part: &str) {
        let _ = write!(self, "{}:{part}", part.len());
    }

    pub(crate) fn read<R>(&self, read: impl FnOnce(&str) -> R) -> R {
        // Only whole texts are written.
        read(std::str::from_utf8(&self.0).unwrap_or_default())
    }
}

impl Write for KeyText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
