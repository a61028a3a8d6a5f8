//! Turns separating tabs into spaces: the parser of envoyproxy/ratelimit takes `key:<tab>value`, ours does not.

/// Returns true if no scalar spans lines: no quotes are left open, and no block scalar begins.
pub(super) fn quotes_end_on_their_lines(text: &[char]) -> bool {
    text.split(|&character| character == '\n').all(|line| {
        let count = |quote| line.iter().filter(|&&character| character == quote).count();
        count('"').is_multiple_of(2)
            && count('\'').is_multiple_of(2)
            && count('|') + count('>') == 0
    })
}

/// Replaces the tabs after colons by spaces, in a line without quotes.
pub(super) fn blank_after_colons(line: &mut [char]) {
    if line.contains(&'"') || line.contains(&'\'') {
        return;
    }
    let mut separates = false;
    for character in line {
        separates = *character == ':' || separates && *character == '\t';
        if *character == '\t' && separates {
            *character = ' ';
        }
    }
}

/// Replaces the tabs before `end` by spaces; returns false if there are none.
pub(super) fn blank_tabs(text: &mut [char], end: usize) -> bool {
    let before = text.get_mut(..end).unwrap_or_default();
    let tabs = before
        .iter_mut()
        .rev()
        .take_while(|character| **character == '\t');
    tabs.map(|tab| *tab = ' ').count() > 0
}
