//! The results as JUnit XML, which CI systems read. Each file of tests is a suite.

use super::report::Report;
use std::fmt::Write as _;

/// A test, or a file that is refused.
pub(super) struct Case<'a> {
    pub(super) file: &'a str,
    pub(super) line: u32,
    pub(super) name: &'a str,
    pub(super) outcome: Outcome,
}

/// The result of a case. Texts say what is wrong.
pub(super) enum Outcome {
    Passed,
    Failed(String),
    /// It is refused.
    Error(String),
    /// It was not run.
    Skipped(&'static str),
}

impl Outcome {
    const fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_))
    }

    const fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }

    const fn is_skipped(&self) -> bool {
        matches!(self, Self::Skipped(_))
    }
}

impl Report {
    /// All results.
    pub(super) fn junit(&self) -> String {
        let cases = self.cases();
        let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
        let all: Vec<_> = cases.iter().collect();
        begin(&mut xml, "testsuites", "ratekeeper rules test", &all);
        let mut files: Vec<_> = cases.iter().map(|case| case.file).collect();
        files.dedup();
        for file in files {
            let of_file: Vec<_> = all.iter().copied().filter(|it| it.file == file).collect();
            begin(&mut xml, "testsuite", file, &of_file);
            of_file.iter().for_each(|case| case.add_to(&mut xml));
            xml.push_str("</testsuite>\n");
        }
        xml.push_str("</testsuites>\n");
        xml
    }
}

fn begin(xml: &mut String, element: &str, name: &str, cases: &[&Case<'_>]) {
    let count = |is: fn(&Outcome) -> bool| cases.iter().filter(|it| is(&it.outcome)).count();
    let (name, tests) = (escaped(name), cases.len());
    let (failures, errors) = (count(Outcome::is_failure), count(Outcome::is_error));
    let skipped = count(Outcome::is_skipped);
    let _ = writeln!(
        xml,
        "<{element} name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\">"
    );
}

impl Case<'_> {
    fn add_to(&self, xml: &mut String) {
        let (name, file, line) = (escaped(self.name), escaped(self.file), self.line);
        let _ = write!(
            xml,
            "<testcase name=\"{name}\" classname=\"{file}\" file=\"{file}\" line=\"{line}\""
        );
        let (element, text) = match &self.outcome {
            Outcome::Passed => {
                xml.push_str("/>\n");
                return;
            }
            Outcome::Skipped(why) => {
                let _ = writeln!(xml, ">\n<skipped message=\"{why}\"/>\n</testcase>");
                return;
            }
            Outcome::Failed(text) => ("failure", text),
            Outcome::Error(text) => ("error", text),
        };
        let message = escaped(text.lines().next().unwrap_or_default());
        let text = escaped(text);
        let _ = writeln!(
            xml,
            ">\n<{element} message=\"{message}\">{text}</{element}>\n</testcase>"
        );
    }
}

/// The text as XML has it, in an element or an attribute. Characters that XML 1.0 cannot have become U+FFFD.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(character),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ if character.is_control() => escaped.push('\u{fffd}'),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_an_element_or_is_no_xml() {
        assert_eq!(
            escaped("a<b>&\"c\"\u{1b}[0m\n"),
            "a&lt;b&gt;&amp;&quot;c&quot;\u{fffd}[0m\n"
        );
    }
}
