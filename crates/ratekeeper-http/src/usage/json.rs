//! Finds values in JSON that comes in pieces.
//!
//! Objects and lists in which no pointer can match are passed by bracket by bracket, however deep they are. Only the few
//! that lead to a pointer are known with their keys. What is no JSON ends the search, and what was found stays.

use ratekeeper_rules::{POINTER_DEPTH_MAX, PointerToken};

/// The most bytes of a key, a number or a text that is looked for.
const TEXT_MAX: usize = 256;

/// A set of places, by index.
pub(crate) type Places = u32;

/// A value at a place that is looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'a> {
    /// A number, as it is written.
    Number(&'a [u8]),
    /// A text, without its escapes; only where texts are wanted.
    Text(&'a [u8]),
    /// Anything else; null only where texts are wanted.
    Other,
}

/// The places to look for, and the receiver of what is found there.
pub(crate) trait Target {
    /// True if texts are wanted; else they are [`Found::Other`].
    const TEXTS: bool;

    /// The tokens of the pointer to a place.
    fn tokens(&self, place: usize) -> &[PointerToken];

    /// Takes what was found at a place.
    fn found(&mut self, place: usize, value: Found<'_>);

    /// Hears of a key that leads some readers to a place, and others not: one in other letters' case, or one that is there
    /// again on the way to the place. Only where texts are wanted.
    fn ambiguous(&mut self, _place: usize) {}
}

/// Reads one JSON text after the other.
#[derive(Clone, Debug)]
pub(crate) struct JsonScanner {
    at: At,
    /// All places that are looked for.
    places: Places,
    /// The places that the value at hand may lead to.
    value: Places,
    /// True in a text that is a value, and no key.
    is_value: bool,
    /// The objects and lists around the value that lead to places.
    levels: [Level; POINTER_DEPTH_MAX],
    depth: usize,
    /// The brackets that are open in a value that leads to none.
    skipped: u64,
    text: Text,
}

/// An object or a list that leads to places.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    places: Places,
    /// The places that a key of the object has led to so far.
    led: Places,
    is_list: bool,
    /// The index of the item at hand.
    index: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    /// Before a value.
    Value,
    /// Before a value, or at the end of an empty list.
    FirstItem,
    /// Before a key, or at the end of an empty object.
    FirstKey,
    /// Before a key.
    Key,
    /// In a key, or in a text that is looked for.
    InKey,
    /// Behind a backslash in it.
    KeyEscape,
    /// In the digits of an escape in it: so many are there.
    KeyCode { digits: u8, code: u16 },
    /// Behind a key.
    Colon,
    /// In another text.
    InText,
    /// Behind a backslash in it.
    TextEscape,
    /// In a number that is looked for.
    Number,
    /// In a number or a word that is not.
    Word,
    /// Behind a value.
    Comma,
    /// In a value that leads to no place.
    Skip,
    /// In a text in it.
    SkipText,
    /// Behind a backslash in that.
    SkipEscape,
    /// In something that is no JSON.
    Broken,
}

/// A key or a number, as far as it has come.
#[derive(Clone, Debug)]
struct Text {
    bytes: [u8; TEXT_MAX],
    length: usize,
    is_too_long: bool,
}

impl Text {
    fn clear(&mut self) {
        (self.length, self.is_too_long) = (0, false);
    }

    fn push(&mut self, bytes: &[u8]) {
        match self.bytes.get_mut(self.length..self.length + bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            None => self.is_too_long = true,
        }
    }

    fn get(&self) -> Option<&[u8]> {
        (!self.is_too_long).then_some(&self.bytes[..self.length])
    }
}

impl JsonScanner {
    /// A scanner that looks for these places.
    pub(crate) fn new(places: Places) -> Self {
        Self {
            at: At::Value,
            places,
            value: places,
            is_value: false,
            levels: [Level::default(); POINTER_DEPTH_MAX],
            depth: 0,
            skipped: 0,
            text: Text {
                bytes: [0; TEXT_MAX],
                length: 0,
                is_too_long: false,
            },
        }
    }

    /// Returns true if what came is no JSON.
    pub(crate) fn is_broken(&self) -> bool {
        self.at == At::Broken
    }

    /// Begins a text. What is left of the one before is dropped.
    pub(crate) fn begin(&mut self) {
        self.at = At::Value;
        self.value = self.places;
        self.depth = 0;
    }

    /// Reads the next piece.
    pub(crate) fn feed<T: Target>(&mut self, piece: &[u8], target: &mut T) {
        let mut rest = piece;
        while !rest.is_empty() {
            rest = match self.at {
                At::Broken => return,
                At::InText | At::SkipText => self.in_text(rest),
                At::Skip => self.skip(rest),
                At::InKey => self.in_key(rest, target),
                _ => {
                    // A byte that ends a number or a word is looked at again.
                    if self.step(rest[0], target) {
                        &rest[1..]
                    } else {
                        rest
                    }
                }
            };
        }
    }

    /// Passes by a text that is of no interest.
    fn in_text<'p>(&mut self, piece: &'p [u8]) -> &'p [u8] {
        let Some(end) = memchr::memchr2(b'"', b'\\', piece) else {
            return &[];
        };
        let is_skipped = self.at == At::SkipText;
        self.at = match (piece[end], is_skipped) {
            (b'"', false) => At::Comma,
            (b'"', true) => At::Skip,
            (_, false) => At::TextEscape,
            (_, true) => At::SkipEscape,
        };
        &piece[end + 1..]
    }

    /// Passes by a value that leads to no place.
    fn skip<'p>(&mut self, piece: &'p [u8]) -> &'p [u8] {
        for (index, byte) in piece.iter().enumerate() {
            match byte {
                b'"' => self.at = At::SkipText,
                b'{' | b'[' => {
                    self.skipped = self.skipped.saturating_add(1);
                    continue;
                }
                b'}' | b']' => {
                    self.skipped -= 1;
                    if self.skipped > 0 {
                        continue;
                    }
                    self.at = At::Comma;
                }
                _ => continue,
            }
            return &piece[index + 1..];
        }
        &[]
    }

    fn in_key<'p, T: Target>(&mut self, piece: &'p [u8], target: &mut T) -> &'p [u8] {
        let end = memchr::memchr2(b'"', b'\\', piece);
        self.text.push(&piece[..end.unwrap_or(piece.len())]);
        let Some(end) = end else {
            return &[];
        };
        if piece[end] != b'"' {
            self.at = At::KeyEscape;
        } else if self.is_value {
            let text = self.text.get().map_or(Found::Other, Found::Text);
            self.found(text, target);
            self.at = At::Comma;
        } else {
            self.value = self.leads(target, |token, key| key == Some(token.key.as_bytes()));
            if T::TEXTS {
                self.compare_key(target);
            }
            self.at = At::Colon;
        }
        &piece[end + 1..]
    }

    /// Tells the target of a place that readers may disagree on for the key at hand. Some, such as Go's, take a key in
    /// another case for the same, and of two objects most take the last.
    fn compare_key<T: Target>(&mut self, target: &mut T) {
        let alike = self.leads(target, |token, key| {
            let key = key.and_then(|key| std::str::from_utf8(key).ok());
            key.is_some_and(|key| key != &*token.key && folded(key).eq(folded(&token.key)))
        });
        let depth = self.depth;
        let Some(level) = depth.checked_sub(1).and_then(|at| self.levels.get_mut(at)) else {
            return;
        };
        // Two values at a place itself are compared when they have come.
        let again =
            bits(level.led & self.value).filter(|place| target.tokens(*place).len() > depth);
        let ambiguous = alike | set(again);
        level.led |= self.value;
        bits(ambiguous).for_each(|place| target.ambiguous(place));
    }

    /// The places of the innermost level whose next token is the key or index at hand.
    fn leads<T: Target>(
        &self,
        target: &T,
        is_next: impl Fn(&PointerToken, Option<&[u8]>) -> bool,
    ) -> Places {
        let Some(at) = self.depth.checked_sub(1) else {
            return self.places;
        };
        let leads = |place: &usize| {
            let token = target.tokens(*place).get(at);
            token.is_some_and(|token| is_next(token, self.text.get()))
        };
        set(bits(self.levels[at].places).filter(leads))
    }

    /// Takes one byte; false if it is to be looked at again.
    fn step<T: Target>(&mut self, byte: u8, target: &mut T) -> bool {
        let is_space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        match self.at {
            At::Value | At::FirstItem | At::FirstKey | At::Key | At::Colon | At::Comma
                if is_space => {}
            At::FirstItem if byte == b']' => self.close(),
            At::FirstKey if byte == b'}' => self.close(),
            At::Value | At::FirstItem => self.begin_value(byte, target),
            At::FirstKey | At::Key if byte == b'"' => {
                self.text.clear();
                self.is_value = false;
                self.at = At::InKey;
            }
            At::KeyEscape => self.escape(byte),
            At::KeyCode { digits, code } => self.code(digits, code, byte),
            At::Colon if byte == b':' => self.at = At::Value,
            At::TextEscape => self.at = At::InText,
            At::SkipEscape => self.at = At::SkipText,
            At::Number if is_of_number(byte) => self.text.push(&[byte]),
            At::Number => {
                let is_whole = is_space || matches!(byte, b',' | b']' | b'}');
                let number = self.text.get().filter(|_| is_whole);
                let number = number.map_or(Found::Other, Found::Number);
                self.found(number, target);
                self.at = At::Comma;
                return false;
            }
            At::Word if is_of_number(byte) || byte.is_ascii_alphabetic() => {}
            At::Word => {
                self.at = At::Comma;
                return false;
            }
            At::Comma => return self.after_value(byte, target),
            // Texts and skipped values are taken in pieces.
            At::FirstKey
            | At::Key
            | At::Colon
            | At::Broken
            | At::InKey
            | At::InText
            | At::Skip
            | At::SkipText => self.at = At::Broken,
        }
        true
    }

    /// Behind a value: the next one of the list or object, or of the body.
    fn after_value<T: Target>(&mut self, byte: u8, target: &T) -> bool {
        let Some(at) = self.depth.checked_sub(1) else {
            // Bodies may have several texts, one a line.
            self.begin();
            return false;
        };
        let level = &mut self.levels[at];
        match (byte, level.is_list) {
            (b',', true) => {
                level.index = level.index.saturating_add(1);
                self.begin_item(target);
            }
            (b',', false) => self.at = At::Key,
            (b']', true) | (b'}', false) => self.close(),
            _ => self.at = At::Broken,
        }
        true
    }

    fn begin_item<T: Target>(&mut self, target: &T) {
        let index = self.depth.checked_sub(1).map(|at| self.levels[at].index);
        self.value = self.leads(target, |token, _| token.is_any || token.index == index);
        self.at = At::Value;
    }

    /// Closes the innermost level.
    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.at = At::Comma;
    }

    fn begin_value<T: Target>(&mut self, byte: u8, target: &mut T) {
        let is_wanted = self.ends_here(target) != 0;
        match byte {
            b'"' if is_wanted && T::TEXTS => {
                self.text.clear();
                self.is_value = true;
                self.at = At::InKey;
            }
            b'-' | b'0'..=b'9' if is_wanted => {
                self.text.clear();
                self.text.push(&[byte]);
                self.at = At::Number;
            }
            b'-' | b'0'..=b'9' => self.at = At::Word,
            b'{' | b'[' | b'"' | b't' | b'f' | b'n' => {
                // For numbers null is as good as nothing: streams send it before the usage is known.
                if is_wanted && (byte != b'n' || T::TEXTS) {
                    self.found(Found::Other, target);
                }
                match byte {
                    b'{' | b'[' => self.open(byte == b'[', target),
                    b'"' => self.at = At::InText,
                    _ => self.at = At::Word,
                }
            }
            _ => self.at = At::Broken,
        }
    }

    /// Opens a list or an object.
    fn open<T: Target>(&mut self, is_list: bool, target: &T) {
        let places = self.value & !self.ends_here(target);
        let Some(level) = self.levels.get_mut(self.depth).filter(|_| places != 0) else {
            self.skipped = 1;
            self.at = At::Skip;
            return;
        };
        *level = Level {
            places,
            led: 0,
            is_list,
            index: 0,
        };
        self.depth += 1;
        if is_list {
            self.begin_item(target);
            self.at = At::FirstItem;
        } else {
            self.at = At::FirstKey;
        }
    }

    /// The places that are those of the value at hand.
    fn ends_here<T: Target>(&self, target: &T) -> Places {
        if self.value == 0 {
            return 0;
        }
        set(bits(self.value).filter(|place| target.tokens(*place).len() == self.depth))
    }

    /// Passes on what was found at the places of the value at hand.
    fn found<T: Target>(&self, value: Found<'_>, target: &mut T) {
        for place in bits(self.ends_here(target)) {
            target.found(place, value);
        }
    }

    fn escape(&mut self, byte: u8) {
        let char = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                self.at = At::KeyCode { digits: 0, code: 0 };
                return;
            }
            _ => {
                self.at = At::Broken;
                return;
            }
        };
        self.text.push(&[char]);
        self.at = At::InKey;
    }

    fn code(&mut self, digits: u8, code: u16, byte: u8) {
        let Some(digit) = char::from(byte).to_digit(16) else {
            self.at = At::Broken;
            return;
        };
        let code = code << 4 | u16::try_from(digit).unwrap_or(0);
        if digits < 3 {
            let digits = digits + 1;
            self.at = At::KeyCode { digits, code };
            return;
        }
        match char::from_u32(u32::from(code)) {
            Some(char) => self.text.push(char.encode_utf8(&mut [0; 4]).as_bytes()),
            // Half of a pair: keys of such characters are looked for in the form without escapes only.
            None => self.text.is_too_long = true,
        }
        self.at = At::InKey;
    }
}

/// The characters of `key` without their case, as readers compare them that do not care: some letters beyond ASCII, such as
/// the long s, are another case of one within.
fn folded(key: &str) -> impl Iterator<Item = char> + '_ {
    key.chars()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
}

const fn is_of_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')
}

/// The set of these indexes.
pub(crate) fn set(places: impl Iterator<Item = usize>) -> Places {
    places.fold(0, |all, place| all | 1 << place)
}

/// The indexes in a set.
fn bits(places: Places) -> impl Iterator<Item = usize> {
    let mut left = places;
    std::iter::from_fn(move || {
        let index = left.trailing_zeros();
        left &= left.checked_sub(1)?;
        usize::try_from(index).ok()
    })
}
