//! Characters that reorder the text around them: shown raw, a name could pass for another one.

/// Returns true if `c` controls the direction of text.
pub(super) const fn is_control(c: char) -> bool {
    matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// JSON with such characters as escapes: the same values. Outside of its strings JSON has none.
pub(crate) fn escaped_json(json: String) -> String {
    match json.contains(is_control) {
        false => json,
        true => escaped(&json),
    }
}

/// The text with `\uXXXX` for each such character.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_control(c) {
            true => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_with_escapes_has_the_same_values() {
        let value = serde_json::json!({"ac\u{202e}me": "\u{200f}\\u202e \u{2066}x", "n": 1});
        let json = escaped_json(value.to_string());
        assert!(!json.contains(is_control), "{json}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&json).ok(),
            Some(value)
        );
    }
}
