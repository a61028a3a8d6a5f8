//! Rules that come from elsewhere than files: a control plane, a URL, a database.
//!
//! A source hands over all texts at once, and hears what became of them before it hands over the next ones. What cannot be
//! fetched is the source's to tell; the rules in force stay until something else is delivered.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use ratekeeper_rules::{Diagnostic, Diagnostics, Loaded, Options, Source, load, path_at};
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};

/// The settings of a feed.
#[derive(Clone, Debug)]
pub struct FeedConfig {
    /// The source, for people, and for telling its kept rules from others': it has no secrets.
    pub name: String,
    /// The options for parsing.
    pub options: Options,
    /// The fate of the other texts if one is bad.
    pub on_bad_text: OnBadText,
}

/// The fate of a delivery with a bad text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnBadText {
    /// It is refused whole, as a folder of files is.
    RefuseAll,
    /// The others are taken. The last good text of the same name stays in place of the bad one.
    TakeOthers,
}

/// The end of a feed that a source delivers to.
#[derive(Clone, Debug)]
pub struct RulesFeed(mpsc::Sender<Delivery>);

/// All texts of a source at one moment.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) sources: Vec<Source>,
    pub(super) answer: oneshot::Sender<Result<(), DeliveryError>>,
}

/// The reason why a delivery is not in force as it is.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeliveryError {
    /// It has mistakes: name of the text, path in it and message, a line for each. Quotes nothing from the texts.
    #[error("{0}")]
    Refused(Arc<str>),
    /// Taking it failed because of a mistake of Ratekeeper, which its log tells.
    #[error("the rules could not be put in force, which is a mistake of Ratekeeper: see its log")]
    Failed,
    /// The server has ended.
    #[error("the server has ended")]
    Ended,
}

impl RulesFeed {
    /// Hands over all texts, and waits until they are in force or refused. An empty list removes all rules.
    ///
    /// # Errors
    /// Texts were refused, some or all, or the server cannot take them.
    pub async fn deliver(&self, sources: Vec<Source>) -> Result<(), DeliveryError> {
        let (answer, taken) = oneshot::channel();
        let delivery = Delivery { sources, answer };
        let sent = self.0.send(delivery).await;
        sent.map_err(|_| DeliveryError::Ended)?;
        // Who takes it has dropped the answer: it is begun again, or ends, as the next delivery finds out.
        taken.await.unwrap_or(Err(DeliveryError::Failed))
    }
}

/// The end of a feed that rules are loaded from.
#[derive(Debug)]
pub(super) struct FeedEnd {
    pub(super) name: Arc<str>,
    pub(super) options: Arc<Options>,
    on_bad_text: OnBadText,
    deliveries: mpsc::Receiver<Delivery>,
}

impl FeedEnd {
    pub(super) fn new(config: FeedConfig) -> (Self, RulesFeed) {
        let (sender, deliveries) = mpsc::channel(1);
        let end = Self {
            name: config.name.into(),
            options: Arc::new(config.options),
            on_bad_text: config.on_bad_text,
            deliveries,
        };
        (end, RulesFeed(sender))
    }

    /// The next delivery; [`None`] once there will be no more.
    pub(super) async fn next(&mut self) -> Option<Delivery> {
        self.deliveries.recv().await
    }

    /// The compiler of a delivery, for a thread that may block. `in_force` are the texts that are in force.
    pub(super) fn compiler(
        &self,
        in_force: Arc<[Source]>,
    ) -> impl FnOnce(Vec<Source>) -> Result<Compiled, Arc<str>> + Send + 'static + use<> {
        let (options, on_bad_text) = (Arc::clone(&self.options), self.on_bad_text);
        move |sources| compile(sources, &in_force, &options, on_bad_text)
    }
}

/// Rules from a delivery.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) loaded: Loaded,
    /// The texts they were compiled from.
    pub(super) sources: Vec<Source>,
    /// The mistakes of the texts that were left out.
    pub(super) left_out: Option<Arc<str>>,
}

impl Compiled {
    /// Returns true if all texts were left out: these are no rules to decide by.
    pub(super) const fn is_nothing(&self) -> bool {
        self.sources.is_empty() && self.left_out.is_some()
    }
}

/// The most times that a delivery is compiled again without the texts that were bad. Two do unless texts contradict each
/// other.
const ROUNDS_MAX: usize = 8;

fn compile(
    mut sources: Vec<Source>,
    in_force: &[Source],
    options: &Options,
    on_bad_text: OnBadText,
) -> Result<Compiled, Arc<str>> {
    let (mut told, mut refused) = (Vec::new(), BTreeSet::new());
    for _ in 0..ROUNDS_MAX {
        let mistakes = match load(&sources, options) {
            Ok(mut loaded) => {
                loaded.rules = loaded.rules.refusing(refused);
                let left_out = (!told.is_empty()).then(|| told.join("\n").into());
                return Ok(Compiled {
                    loaded,
                    sources,
                    left_out,
                });
            }
            Err(mistakes) => mistakes,
        };
        if on_bad_text == OnBadText::RefuseAll {
            return Err(mistakes.brief().into());
        }
        told.extend(lines(&mistakes, &sources));
        let bad = bad(&mistakes);
        let of_bad = sources.iter().filter(|source| bad.contains(&*source.name));
        refused.extend(of_bad.filter_map(domain));
        sources = without_bad(sources, in_force, &bad);
    }
    Err(told.join("\n").into())
}

/// The names of the texts that have mistakes.
fn bad(mistakes: &Diagnostics) -> HashSet<&str> {
    let errors = mistakes.errors().iter();
    errors.map(|error| &*error.place.file).collect()
}

/// The domain of a text, if that is JSON, as feeds write it whose bad texts are left out.
fn domain(source: &Source) -> Option<Box<str>> {
    #[derive(Deserialize)]
    struct Named {
        domain: Box<str>,
    }
    let named: Named = serde_json::from_str(&source.text).ok()?;
    Some(named.domain)
}

/// The sources without those that are `bad`; the one in force takes the place of a bad one, unless that was it.
fn without_bad(sources: Vec<Source>, in_force: &[Source], bad: &HashSet<&str>) -> Vec<Source> {
    let kept = sources.into_iter().filter_map(|source| {
        if !bad.contains(&*source.name) {
            return Some(source);
        }
        let before = in_force.iter().find(|before| before.name == source.name);
        before.filter(|before| **before != source).cloned()
    });
    kept.collect()
}

/// Each mistake on a line: the name of the text, and the path in it, which its author knows; its lines were generated.
fn lines<'m>(
    mistakes: &'m Diagnostics,
    sources: &'m [Source],
) -> impl Iterator<Item = String> + 'm {
    mistakes.errors().iter().map(|error| line(error, sources))
}

fn line(error: &Diagnostic, sources: &[Source]) -> String {
    let place = &error.place;
    let source = sources.iter().find(|source| *source.name == *place.file);
    let path = source.and_then(|source| path_at(&source.text, place.line, place.column));
    match path {
        Some(path) if path.is_empty() => format!("{}: {}", place.file, error.message),
        Some(path) => format!("{}: {path}: {}", place.file, error.message),
        None => error.brief(),
    }
}

/// The fingerprint of texts, and of the domains without rules beside them. Only compared with others of this process, so the
/// hash need not last.
pub(super) fn fingerprint(sources: &[Source], refused: &BTreeSet<Box<str>>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (sources, refused).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &str, text: &str) -> Source {
        Source {
            name: name.to_owned(),
            text: text.to_owned(),
        }
    }

    fn rules(name: &str, domain: &str, unit: &str) -> Source {
        let text = format!(
            r#"{{"domain": "{domain}", "descriptors": [{{"key": "k", "rate_limit": {{"unit": "{unit}", "requests_per_unit": 5}}}}]}}"#
        );
        source(name, &text)
    }

    fn names(sources: &[Source]) -> Vec<&str> {
        sources.iter().map(|source| &*source.name).collect()
    }

    fn compiled(sources: Vec<Source>, in_force: &[Source]) -> Compiled {
        let compiled = compile(
            sources,
            in_force,
            &Options::default(),
            OnBadText::TakeOthers,
        );
        compiled.expect("some are good")
    }

    #[test]
    fn good_texts_are_taken_and_a_bad_one_is_told_with_its_path() {
        let delivered = vec![rules("a", "a", "hour"), rules("b", "b", "UNKNOWN")];
        let taken = compiled(delivered.clone(), &[]);
        assert_eq!(names(&taken.sources), ["a"]);
        assert!(taken.loaded.rules.refused_domains().contains("b") && !taken.is_nothing());
        assert_eq!(
            taken.left_out.as_deref(),
            Some("b: descriptors[0].rate_limit.unit: invalid rate limit unit 'UNKNOWN'")
        );
        let refused = compile(delivered, &[], &Options::default(), OnBadText::RefuseAll);
        let why = refused.map(drop).expect_err("a text is bad");
        assert_eq!(&*why, "b:1:69: invalid rate limit unit 'UNKNOWN'");
    }

    #[test]
    fn the_last_good_text_of_a_bad_one_stays() {
        let before = rules("b", "b", "minute");
        let delivered = vec![rules("a", "a", "hour"), rules("b", "b", "fortnight")];
        let taken = compiled(delivered, std::slice::from_ref(&before));
        assert_eq!(names(&taken.sources), ["a", "b"]);
        assert!(taken.sources.contains(&before));
        assert!(taken.loaded.rules.refused_domains().is_empty());
    }

    #[test]
    fn of_two_texts_that_contradict_each_other_the_first_one_stays() {
        let delivered = vec![rules("a", "shop", "hour"), rules("b", "shop", "minute")];
        let taken = compiled(delivered, &[]);
        assert_eq!(names(&taken.sources), ["a"]);
        let why = taken.left_out.expect("one is left out");
        assert!(why.starts_with("b: domain: "), "{why}");
        assert!(taken.loaded.rules.refused_domains().is_empty());
    }

    #[test]
    fn all_may_be_bad_and_all_may_be_gone() {
        let taken = compiled(vec![source("a", "{"), source("b", "domain: ''")], &[]);
        assert!(taken.is_nothing());
        let taken = compiled(Vec::new(), &[]);
        assert!(taken.loaded.rules.rules().is_empty() && !taken.is_nothing());
    }
}
