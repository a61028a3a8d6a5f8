//! The few values that are needed of the lines of JSON that cargo prints.
//!
//! A parser would have to be built before anything else is, also before a first `cargo xtask run`.

/// The text of the first member `name`, if it has one.
pub(super) fn text(json: &str, name: &str) -> Option<String> {
    let rest = member(json, name)?.strip_prefix('"')?;
    let mut text = String::new();
    let mut letters = rest.chars();
    loop {
        match letters.next()? {
            '"' => return Some(text),
            // Paths have no other escapes than those of quotes and backslashes.
            '\\' => text.push(letters.next()?),
            letter => text.push(letter),
        }
    }
}

/// The object without objects in it that is the first member `name`.
pub(super) fn object<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let (object, _) = member(json, name)?.split_once('}')?;
    object.starts_with('{').then_some(object)
}

/// Returns true if the first member `name` is true.
pub(super) fn is_true(json: &str, name: &str) -> bool {
    member(json, name).is_some_and(|value| value.starts_with("true"))
}

/// The text after the first member's name. Inside of texts quotes are escaped, so they hold no names.
fn member<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = json.split_once(&format!("\"{name}\":"))?;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found() {
        let line = r#"{"target":{"name":"a \"b\" \\c","test":false},"profile":{"level":"0","test":true},"executable":null}"#;
        assert_eq!(text(line, "name").as_deref(), Some(r#"a "b" \c"#));
        assert_eq!(text(line, "executable"), None);
        assert_eq!(text(line, "nothing"), None);
        assert_eq!(object(line, "profile"), Some(r#"{"level":"0","test":true"#));
        assert!(!is_true(line, "test"));
        assert!(object(line, "profile").is_some_and(|profile| is_true(profile, "test")));
    }
}
