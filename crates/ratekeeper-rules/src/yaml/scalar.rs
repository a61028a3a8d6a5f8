//! Resolves scalars by the rules of YAML 1.1, as Go's yaml.v2 (the parser of envoyproxy/ratelimit)
//! applies them: `010` is 8, `yes` is a boolean, dates are text. The spellings are those of
//! <https://yaml.org/type/>, less base 60.

/// The value of a scalar. The literal text is kept beside it: a `value: 010` is the text `010`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Resolved {
    Null,
    Bool(bool),
    Int(i64),
    /// Above the range of [`Self::Int`]; envoyproxy/ratelimit accepts such a number nowhere.
    BigInt(u64),
    Float(f64),
    Text,
}

impl Resolved {
    /// The kind with its article, for messages.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "a whole number",
            Self::BigInt(_) => "a number above 9223372036854775807",
            Self::Float(_) => "a decimal number",
            Self::Text => "text",
        }
    }
}

/// Resolves a plain (unquoted) scalar without a tag.
pub(crate) fn resolve_plain(text: &str) -> Resolved {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Resolved::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Resolved::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Resolved::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Resolved::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Resolved::Float(f64::INFINITY);
        }
        "-.inf" | "-.Inf" | "-.INF" => return Resolved::Float(f64::NEG_INFINITY),
        _ => {}
    }
    match text.as_bytes().first() {
        // Underscores may separate digits, but not in a number that starts with a point.
        Some(b'.') => float(text).map_or(Resolved::Text, Resolved::Float),
        Some(b'0'..=b'9' | b'+' | b'-') => number(text),
        _ => Resolved::Text,
    }
}

fn number(text: &str) -> Resolved {
    let digits: String = text.chars().filter(|&character| character != '_').collect();
    if let Some(int) = integer(&digits) {
        return int;
    }
    float(&digits).map_or(Resolved::Text, Resolved::Float)
}

/// Parses an integer as Go's `strconv.ParseInt(_, 0, 64)` does, else as `ParseUint`.
fn integer(text: &str) -> Option<Resolved> {
    let (negative, signed, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, true, text.get(1..)?),
        b'+' => (false, true, text.get(1..)?),
        _ => (false, false, text),
    };
    let (radix, digits) = radix_of(unsigned);
    // `from_str_radix` would accept a second sign.
    if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    let value = if negative {
        -i128::from(magnitude)
    } else {
        i128::from(magnitude)
    };
    match i64::try_from(value) {
        Ok(int) => Some(Resolved::Int(int)),
        Err(_) if !signed => Some(Resolved::BigInt(magnitude)),
        Err(_) => None,
    }
}

fn radix_of(text: &str) -> (u32, &str) {
    let prefix = text.get(..2).map(str::to_ascii_lowercase);
    match prefix.as_deref() {
        Some("0x") => (16, &text[2..]),
        Some("0b") => (2, &text[2..]),
        Some("0o") => (8, &text[2..]),
        // A zero alone is decimal; before other digits it means octal.
        Some(prefix) if prefix.starts_with('0') => (8, &text[1..]),
        _ => (10, text),
    }
}

/// Parses `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`. [`None`] beyond the range of a
/// double: envoyproxy/ratelimit takes such a number for text.
fn float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        Some(("", fraction)) => digits(fraction),
        Some((whole, fraction)) => digits(whole) && (fraction.is_empty() || digits(fraction)),
        None => digits(mantissa),
    };
    let exponent_fits = exponent
        .is_none_or(|exponent| digits(exponent.strip_prefix(['-', '+']).unwrap_or(exponent)));
    if !mantissa_fits || !exponent_fits {
        return None;
    }
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

/// Resolves a scalar with an explicit tag; [`None`] if tag and text contradict each other. `suffix`
/// is the part after `tag:yaml.org,2002:`, `!!` for short.
pub(crate) fn resolve_tagged(suffix: &str, text: &str) -> Option<Resolved> {
    let plain = resolve_plain(text);
    match (suffix, plain) {
        ("bool", Resolved::Bool(_))
        | ("int", Resolved::Int(_) | Resolved::BigInt(_))
        | ("float", Resolved::Float(_))
        | ("null", Resolved::Null) => Some(plain),
        #[expect(clippy::cast_precision_loss, reason = "a float was asked for")]
        ("float", Resolved::Int(int)) => Some(Resolved::Float(int as f64)),
        ("timestamp", Resolved::Text) if looks_like_date(text) => Some(Resolved::Text),
        ("bool" | "int" | "float" | "null" | "timestamp", _) => None,
        // `str`, and any tag that this parser does not know.
        _ => Some(Resolved::Text),
    }
}

fn looks_like_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.get(4) == Some(&b'-') && bytes.iter().take(4).all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::Resolved::{BigInt, Bool, Float, Int, Null, Text};
    use super::*;

    #[test]
    fn plain_scalars_follow_yaml_1_1() {
        let cases = [
            ("010", Int(8)),
            ("0", Int(0)),
            ("00", Int(0)),
            ("0x10", Int(16)),
            ("0X1f", Int(31)),
            ("-0x10", Int(-16)),
            ("0b101", Int(5)),
            ("0o17", Int(15)),
            ("1_000", Int(1000)),
            ("1_0_", Int(10)),
            ("+5", Int(5)),
            ("-5", Int(-5)),
            ("9223372036854775807", Int(i64::MAX)),
            ("-9223372036854775808", Int(i64::MIN)),
            ("9223372036854775808", BigInt(1 << 63)),
            ("18446744073709551615", BigInt(u64::MAX)),
            ("18446744073709551616", Float(18_446_744_073_709_551_616.0)),
            ("08", Float(8.0)),
            ("0_8", Float(8.0)),
            ("1.10", Float(1.1)),
            ("1.", Float(1.0)),
            (".5", Float(0.5)),
            ("1e3", Float(1000.0)),
            ("-1.5e-3", Float(-0.0015)),
            (".inf", Float(f64::INFINITY)),
            ("-.INF", Float(f64::NEG_INFINITY)),
            ("1e999", Text),
            (".5_5", Text),
            ("--5", Text),
            ("+-5", Text),
            ("-", Text),
            ("_1", Text),
            ("0x", Text),
            ("0xg", Text),
            ("0b2", Text),
            ("1:30", Text),
            ("2001-12-14", Text),
            ("2001-12-14T21:59:43.10Z", Text),
            ("1.2.3", Text),
            ("tRUE", Text),
            ("yEs", Text),
            ("y", Bool(true)),
            ("On", Bool(true)),
            ("N", Bool(false)),
            ("off", Bool(false)),
            ("", Null),
            ("~", Null),
            ("Null", Null),
            ("nULL", Text),
            ("0é", Text),
            ("é0", Text),
        ];
        for (text, expected) in cases {
            assert_eq!(resolve_plain(text), expected, "{text}");
        }
    }

    #[test]
    fn tags_decide_or_contradict() {
        assert_eq!(resolve_tagged("str", "5"), Some(Text));
        assert_eq!(resolve_tagged("int", "5"), Some(Int(5)));
        assert_eq!(resolve_tagged("int", "five"), None);
        assert_eq!(resolve_tagged("float", "5"), Some(Float(5.0)));
        assert_eq!(resolve_tagged("bool", "on"), Some(Bool(true)));
        assert_eq!(resolve_tagged("bool", "1"), None);
        assert_eq!(resolve_tagged("timestamp", "2001-12-14"), Some(Text));
        assert_eq!(resolve_tagged("colour", "5"), Some(Text));
    }
}
