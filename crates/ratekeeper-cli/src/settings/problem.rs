//! Errors in settings, worded so that they can be corrected.

/// One error: its place, what is wrong, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub(crate) struct Problem {
    /// `ratekeeper.yaml:3:1`, `RATEKEEPER_HTTP` or `--http`.
    pub(crate) place: String,
    pub(crate) message: String,
}

/// All errors in the settings, at least one.
#[derive(Debug, thiserror::Error)]
#[error("{}", lines(.0))]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}

/// The known name that is closest to `name`, if it is close enough to have been meant.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let close = name.chars().count() / 4 + 1;
    known
        .map(|candidate| (strsim::levenshtein(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= close)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_one_that_was_meant() {
        let known = || ["grpc", "http", "memory_limit"].into_iter();
        assert_eq!(nearest("memory_limt", known()), Some("memory_limit"));
        assert_eq!(nearest("memmory-limit", known()), Some("memory_limit"));
        assert_eq!(nearest("gprc", known()), Some("grpc"));
        assert_eq!(nearest("redis_pool_size", known()), None);
    }
}
