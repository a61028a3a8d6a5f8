//! Keys of limits as people know them.

/// The tenant that `key` names, as people know it: the last characters of a secret, else the value.
pub(crate) fn shown(key: &str) -> &str {
    let value = value_of(key);
    match fingerprint_and_end(value) {
        Some((fingerprint, _)) => value.get(fingerprint.len()..).unwrap_or(value),
        None => value,
    }
}

/// The fingerprint of a secret and its last characters: `~1f0c83aa5b92d07e` and `x4f2`. Short secrets show no end.
pub(crate) fn fingerprint_and_end(value: &str) -> Option<(&str, &str)> {
    let (fingerprint, end) = value.split_once('…')?;
    fingerprint.starts_with('~').then_some((fingerprint, end))
}

/// The value of an entry that is written as `key:value`.
pub(crate) fn value_of(entry: &str) -> &str {
    entry.split_once(':').map_or(entry, |(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_is_shown_by_its_value_or_by_the_end_of_a_secret() {
        for (key, tenant) in [
            ("customer:acme", "acme"),
            ("customer:a:b", "a:b"),
            ("api_key:~1f0c83aa5b92d07e…x4f2", "…x4f2"),
            ("api_key:~1f0c83aa5b92d07e", "~1f0c83aa5b92d07e"),
            (
                "path:/very/long…1f0c83aa5b92d07e",
                "/very/long…1f0c83aa5b92d07e",
            ),
            ("", ""),
        ] {
            assert_eq!(shown(key), tenant, "{key}");
        }
    }
}
