//! `ratekeeper rules pull`: rules from elsewhere, as files.

use crate::cli::RulesPull;
use crate::output::{self, count};
use crate::settings::{self, Fetched, Flags, Settings, row};
use anyhow::{Context, Result, bail};
use ratekeeper_rules::{ReadOptions, Source};
use ratekeeper_sources::{TextsPlace, TextsSource};
use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

pub(crate) fn run(args: &RulesPull) -> Result<ExitCode> {
    let (settings, place) = place(args.config.as_ref(), args.url.as_deref())?;
    let texts = block_on(async {
        let mut source = TextsSource::new(place.clone(), *settings.values.rules_interval)?;
        anyhow::Ok(source.fetch().await?)
    });
    let texts = texts.with_context(|| format!("the rules in {} cannot be read", place.name()))?;
    match (&args.to, &*texts) {
        (Some(folder), texts) => {
            let written = write(folder, texts, args.force)?;
            let files = count(texts.len(), "file");
            output::print(&format!(
                "{files} in {}, {written} written\n",
                folder.display()
            ))?;
            return left_over(folder, texts, args.force);
        }
        (None, [text]) => output::print_data(&text.text)?,
        (None, texts) => bail!(
            "there are {} texts: name a folder for them with --to FOLDER",
            texts.len()
        ),
    }
    Ok(ExitCode::SUCCESS)
}

/// Tells the files of rules in `folder` that are not among `texts` any more: a push would bring them back. They are not
/// deleted, since they may be other rules.
fn left_over(folder: &Path, texts: &[Source], force: bool) -> Result<ExitCode> {
    let kept: Result<HashSet<_>> = texts
        .iter()
        .map(|text| Ok(folder.join(file_name(&text.name)?)))
        .collect();
    let kept = kept?;
    let there = ratekeeper_rules::read(folder, &ReadOptions::default()).unwrap_or_default();
    let others = there.iter().map(|source| Path::new(&source.name));
    let others: Vec<_> = others.filter(|path| !kept.contains(*path)).collect();
    for path in &others {
        output::complain(&format!(
            "ratekeeper: {} is not at that place: delete it, or `ratekeeper rules push` puts it there",
            path.display()
        ));
    }
    Ok(match others.is_empty() || force {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The place that `url` names, or else the `rules` setting.
///
/// # Errors
/// It is none that texts can be read from.
pub(super) fn place(config: Option<&PathBuf>, url: Option<&str>) -> Result<(Settings, TextsPlace)> {
    let mut flags = Flags::of_config(config.cloned());
    if let Some(url) = url {
        flags = flags.with(&row::rules, url);
    }
    let settings = settings::of_process(&flags)?;
    match &settings.rules.fetched {
        Some(Fetched::Texts(place)) => {
            let place = place.clone();
            Ok((settings, place))
        }
        Some(Fetched::Xds(_)) => bail!(
            "a control plane makes its rules itself; name a URL of texts: https://, redis:// or etcd://"
        ),
        None => bail!("name the URL of the rules: https://, redis:// or etcd://"),
    }
}

/// Runs `work` to its end.
///
/// # Errors
/// Those of `work`, or there is no runtime.
pub(super) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    runtime.block_on(work)
}

/// Writes the texts that `folder` does not have yet, all of them or none; returns their number.
fn write(folder: &Path, texts: &[Source], force: bool) -> Result<usize> {
    let mut missing = Vec::new();
    let mut named = HashMap::new();
    for text in texts {
        let path = folder.join(file_name(&text.name)?);
        if let Some(other) = named.insert(path.clone(), &text.name) {
            bail!(
                "the texts {other:?} and {:?} would both be {}; nothing was written",
                text.name,
                path.display()
            );
        }
        match std::fs::read(&path) {
            Ok(kept) if kept == text.text.as_bytes() => {}
            Ok(_) if !force => bail!(
                "{} is another text than the one there; nothing was written. --force overwrites it",
                path.display()
            ),
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
            _ => missing.push((path, &text.text)),
        }
    }
    for (path, text) in &missing {
        let above = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(above)
            .and_then(|()| std::fs::write(path, text))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(missing.len())
}

/// The file of a text below a folder. One that a folder of rules would not read gets an ending.
fn file_name(name: &str) -> Result<PathBuf> {
    let path = Path::new(name.trim_start_matches('/'));
    let is_below = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if !is_below || path.file_name().is_none() {
        bail!("the text {name:?} has a name that no file here can have; nothing was written");
    }
    Ok(match path.extension().and_then(|end| end.to_str()) {
        Some("yaml" | "yml") => path.to_path_buf(),
        _ => format!("{}.yaml", path.display()).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_would_be_one_file_are_not_written() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let text = |name: &str| Source {
            name: name.to_owned(),
            text: format!("domain: {name}\n"),
        };
        let texts = [text("b"), text("a"), text("a.yaml")];
        let refused = write(folder.path(), &texts, true).expect_err("both are a.yaml");
        let said = refused.to_string();
        assert!(
            said.contains("the texts \"a\" and \"a.yaml\" would both be"),
            "{said}"
        );
        assert!(!folder.path().join("b.yaml").exists() && !folder.path().join("a.yaml").exists());
        assert_eq!(
            write(folder.path(), &texts[..2], false).expect("they differ"),
            2
        );
    }

    #[test]
    fn files_that_are_not_there_any_more_are_told() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let text = |name: &str| Source {
            name: name.to_owned(),
            text: "domain: d\n".to_owned(),
        };
        let both = [text("a"), text("more/b.yaml")];
        write(folder.path(), &both, false).expect("they are written");
        let code = |texts: &[Source], force: bool| {
            let code = left_over(folder.path(), texts, force).expect("they can be read");
            format!("{code:?}")
        };
        let [good, bad] = [ExitCode::SUCCESS, ExitCode::FAILURE].map(|code| format!("{code:?}"));
        assert_eq!(code(&both, false), good);
        assert_eq!(code(&both[..1], false), bad);
        assert_eq!(code(&both[..1], true), good);
        assert!(folder.path().join("more/b.yaml").exists());
    }

    #[test]
    fn no_text_leaves_its_folder() {
        for (name, file) in [
            ("a.yaml", "a.yaml"),
            ("rules", "rules.yaml"),
            ("/teams/a.yml", "teams/a.yml"),
        ] {
            assert_eq!(file_name(name).expect(name), Path::new(file));
        }
        for name in ["", "..", "../a.yaml", "a/../../b", "/"] {
            assert!(file_name(name).is_err(), "{name}");
        }
    }
}
