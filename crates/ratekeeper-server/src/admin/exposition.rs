//! In which of Prometheus' two text formats a scraper reads metrics.

use std::fmt::Write as _;

use http::HeaderMap;
use http::header::ACCEPT;

/// A text format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    /// Prometheus' own, version 0.0.4: what everything that scrapes can read.
    Text,
    /// OpenMetrics 1.0.0, for those that ask for it.
    OpenMetrics,
}

impl Format {
    /// Picks the format from the headers of a request: OpenMetrics if it is named and plain text is
    /// not preferred (RFC 9110, section 12.5.1).
    pub(super) fn wanted(headers: &HeaderMap) -> Self {
        let (mut open, mut plain) = (0, 0);
        for value in headers.get_all(ACCEPT) {
            // What is no text names no type that is known here.
            for range in value.to_str().unwrap_or_default().split(',') {
                let (name, quality) = quality(range);
                match name {
                    "application/openmetrics-text" => open = open.max(quality),
                    "text/plain" => plain = plain.max(quality),
                    _ => {}
                }
            }
        }
        if open > 0 && open >= plain {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// `text`, which is OpenMetrics, in this format.
    pub(super) fn of(self, text: String) -> String {
        match self {
            Self::OpenMetrics => text,
            Self::Text => plain(&text),
        }
    }
}

/// The type that a range of an Accept header names, without parameters, and how much it is
/// wanted, in thousandths: not at all if its version is one that is not written here.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "0 to 1,000"
)]
fn quality(range: &str) -> (&str, u32) {
    let mut parts = range.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let mut quality = 1_000;
    for part in parts {
        match part.split_once('=') {
            Some(("q", text)) => {
                let wanted = text.parse::<f32>().unwrap_or(0.0).clamp(0.0, 1.0);
                // Between 0 and 1,000, so nothing is cut off but digits beyond the third.
                quality = (wanted * 1_000.0) as u32;
            }
            Some(("version", version)) if !matches!(version, "1.0.0" | "0.0.4") => {
                return (name, 0);
            }
            _ => {}
        }
    }
    (name, quality)
}

/// OpenMetrics as Prometheus' older format: there a counter's name is that of its samples, with
/// `_total`, in the lines about it too, a value without a type is `untyped`, and the end is not marked.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    let mut help = None;
    for line in text.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        if let Some(about) = line.strip_prefix("# HELP ") {
            help = about.split_once(' ');
            continue;
        }
        if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|about| about.split_once(' '))
        {
            let (total, kind) = match kind {
                "counter" => ("_total", kind),
                // A parser refuses the whole page for a type that it does not know.
                "unknown" => ("", "untyped"),
                _ => ("", kind),
            };
            // Writing to a string cannot fail.
            if let Some((_, help)) = help.take() {
                let _ = writeln!(out, "# HELP {name}{total} {help}");
            }
            let _ = writeln!(out, "# TYPE {name}{total} {kind}");
            continue;
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(accept: &[&str]) -> Format {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(ACCEPT, value.parse().expect("a header"));
        }
        Format::wanted(&headers)
    }

    #[test]
    fn openmetrics_is_for_those_that_ask_for_it() {
        // As Prometheus 2.42 asks, and as Prometheus 3 does.
        let old = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                   text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let new = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                   text/plain;version=0.0.4;q=0.4,*/*;q=0.2";
        for accept in [
            &[old][..],
            &[new],
            &["application/openmetrics-text"],
            &["text/plain;q=0.1", new],
        ] {
            assert_eq!(wanted(accept), Format::OpenMetrics, "{accept:?}");
        }
        for accept in [
            &[][..],
            &["*/*"],
            &["text/plain;version=0.0.4"],
            &["application/openmetrics-text;q=0.2, text/plain;q=0.9"],
            &["application/openmetrics-text;q=0"],
            &["application/openmetrics-text;version=2.0.0"],
            &["application/openmetrics-text;q=much"],
            &[";;=,,q=1"],
        ] {
            assert_eq!(wanted(accept), Format::Text, "{accept:?}");
        }
    }

    #[test]
    fn plain_text_names_counters_as_their_samples() {
        let open = "# HELP a A counter\n# TYPE a counter\na_total{b=\"# EOF\"} 1\n# HELP g A gauge\n# TYPE g gauge\ng 2\n# EOF\n";
        let plain = "# HELP a_total A counter\n# TYPE a_total counter\na_total{b=\"# EOF\"} 1\n# HELP g A gauge\n# TYPE g gauge\ng 2\n";
        assert_eq!(Format::Text.of(open.to_owned()), plain);
        assert_eq!(Format::OpenMetrics.of(open.to_owned()), open);
    }

    /// A parser of plain text that meets a type it does not know refuses all metrics of the page.
    #[test]
    fn a_value_without_a_type_has_the_word_of_each_format() {
        let open = "# HELP a_total Any\n# TYPE a_total unknown\na_total 1\n# EOF\n";
        let plain = "# HELP a_total Any\n# TYPE a_total untyped\na_total 1\n";
        assert_eq!(Format::Text.of(open.to_owned()), plain);
        assert_eq!(Format::OpenMetrics.of(open.to_owned()), open);
    }
}
