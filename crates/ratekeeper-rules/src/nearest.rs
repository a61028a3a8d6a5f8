//! Suggestions for misspelt names.

/// Returns the one of `known` that is nearest to `written`, if it is near enough to be a typo: at
/// most one edit for every three characters.
#[must_use]
pub fn nearest<'k>(written: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    // Longer than any known name: not worth the quadratic comparison.
    if written.len() > 64 {
        return None;
    }
    let folded = fold(written);
    known
        .into_iter()
        .map(|name| (distance(&folded, &fold(name)), name))
        .min_by_key(|&(distance, _)| distance)
        .filter(|&(distance, name)| distance <= written.len().max(name.len()).div_ceil(3).min(4))
        .map(|(_, name)| name)
}

/// Folds case and hyphens, which a suggestion ignores.
fn fold(name: &str) -> Vec<char> {
    name.chars()
        .map(|c| {
            if c == '-' {
                '_'
            } else {
                c.to_ascii_lowercase()
            }
        })
        .collect()
}

/// Edit distance with swaps of neighbours (Damerau-Levenshtein, optimal string alignment).
fn distance(one: &[char], other: &[char]) -> usize {
    let width = other.len() + 1;
    let mut rows: [Vec<usize>; 3] = [vec![0; width], (0..width).collect(), vec![0; width]];
    for (i, &a) in one.iter().enumerate() {
        rows[2][0] = i + 1;
        for (j, &b) in other.iter().enumerate() {
            let replaced = rows[1][j] + usize::from(a != b);
            let mut best = replaced.min(rows[1][j + 1] + 1).min(rows[2][j] + 1);
            if i > 0 && j > 0 && a == other[j - 1] && one[i - 1] == b {
                best = best.min(rows[0][j - 1] + 1);
            }
            rows[2][j + 1] = best;
        }
        rows.rotate_left(1);
    }
    rows[1][width - 1]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let known = ["requests_per_unit", "unit", "replaces", "rate_limit"];
        assert_eq!(
            nearest("request_per_unit", known),
            Some("requests_per_unit")
        );
        assert_eq!(nearest("ratelimit", known), Some("rate_limit"));
        assert_eq!(nearest("rate-limit", known), Some("rate_limit"));
        assert_eq!(nearest("nuit", known), Some("unit"));
        assert_eq!(nearest("Unit", known), Some("unit"));
        assert_eq!(nearest("banana", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest(&"u".repeat(100), known), None);
    }
}
