//! `ratekeeper rules push`: rules in files, to where services fetch them.

use super::rules_pull::{block_on, place};
use crate::cli::RulesPush;
use crate::output::{self, count, within_line};
use crate::rules;
use anyhow::{Context, Result, bail};
use ratekeeper_rules::{ReadOptions, Source};
use ratekeeper_sources::{FetchError, NewTexts, TextsPlace, TextsSource};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(args: &RulesPush) -> Result<ExitCode> {
    let (settings, place) = place(args.config.as_ref(), args.url.as_deref())?;
    let read = rules::read(&args.path, ReadOptions::default())?;
    let sources = read.sources.clone();
    let loaded = match rules::compile(read, &settings.rules.options) {
        Ok(loaded) => loaded,
        Err(problems) => {
            let errors = count(problems.errors().len(), "error");
            output::complain(&format!("{problems}\n\nnothing was pushed: {errors}"));
            return Ok(ExitCode::FAILURE);
        }
    };
    for warning in &loaded.warnings {
        output::complain(&format!("{warning}\n"));
    }
    let texts = new_texts(&args.path, sources)?;
    let changes = block_on(push(&place, texts, args.dry_run));
    let changes = changes.with_context(|| format!("cannot push to {}", place.name()))?;
    let rules = count(loaded.rules.rules().len(), "rule");
    let done = match (changes.is_empty(), args.dry_run) {
        (true, _) => format!("nothing to push: {rules}"),
        (false, true) => format!("{rules} would be pushed"),
        (false, false) => format!("{rules} pushed"),
    };
    output::print(&format!("{changes}{done}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// One text for a file, or each by its path below the folder.
fn new_texts(path: &Path, sources: Vec<Source>) -> Result<NewTexts> {
    if path.is_file() {
        let mut texts = sources.into_iter().map(|source| source.text);
        let text = texts.next().context("there is no text")?;
        return Ok(NewTexts::One(text));
    }
    let named = sources.into_iter().map(|source| {
        let name = Path::new(&source.name);
        let name = name.strip_prefix(path).unwrap_or(name);
        let Some(name) = name.to_str() else {
            bail!("{} is not UTF-8", name.display());
        };
        Ok(Source {
            name: name.to_owned(),
            text: source.text,
        })
    });
    let mut texts = named.collect::<Result<Vec<_>>>()?;
    texts.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(NewTexts::Many(texts))
}

/// Replaces what is there, and tells the differences.
async fn push(place: &TextsPlace, texts: NewTexts, is_dry: bool) -> Result<String> {
    // Only the pause between two fetches, of which there is one.
    let mut source = TextsSource::new(place.clone(), std::time::Duration::ZERO)?;
    let before = match source.fetch().await {
        Ok(before) => before,
        Err(FetchError::Gone(_)) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let changes = changes(&before, &texts);
    if !is_dry && !changes.is_empty() {
        source.replace(&before, texts).await?;
    }
    Ok(changes)
}

/// A line for each text that is new, other or gone.
fn changes(before: &[Source], texts: &NewTexts) -> String {
    let mut lines = String::new();
    let mut tell = |sign: char, name: &str| {
        let _ = writeln!(lines, "{sign} {}", within_line(name));
    };
    let new = match texts {
        NewTexts::Many(new) => &**new,
        NewTexts::One(text) => {
            match before {
                [one] if one.text == *text => {}
                [] => tell('+', "the text"),
                _ => tell('~', "the text"),
            }
            return lines;
        }
    };
    for text in new {
        match before.iter().find(|it| it.name == text.name) {
            None => tell('+', &text.name),
            Some(it) if it.text != text.text => tell('~', &text.name),
            Some(_) => {}
        }
    }
    for gone in before
        .iter()
        .filter(|it| new.iter().all(|text| text.name != it.name))
    {
        tell('-', &gone.name);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, text: &str) -> Source {
        Source {
            name: name.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn each_change_is_told() {
        let before = [text("a", "1"), text("b", "1"), text("c", "1")];
        let new = NewTexts::Many(vec![text("a", "1"), text("b", "2"), text("d", "1")]);
        assert_eq!(changes(&before, &new), "~ b\n+ d\n- c\n");
        let other = [text("gone\n+ all", "1")];
        let none = NewTexts::Many(Vec::new());
        assert_eq!(changes(&other, &none), "- gone\\n+ all\n");
        let one = NewTexts::One("1".to_owned());
        assert_eq!(changes(&before[..1], &one), "");
        assert_eq!(changes(&[], &one), "+ the text\n");
    }
}
