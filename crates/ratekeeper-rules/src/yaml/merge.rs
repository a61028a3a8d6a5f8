//! Mappings with unique keys, as Go's yaml.v2 decodes them: the last of equal keys counts, and `<<`
//! puts another mapping's keys in its place.

use std::rc::Rc;

use hashbrown::HashMap;

use super::{Kind, Node, Pair, Resolved, Scalar};
use crate::mark::Mark;

pub(super) fn is_merge(key: &Node) -> bool {
    matches!(&key.kind, Kind::Scalar(scalar) if scalar.plain && &*scalar.text == "<<")
}

/// The mappings to merge, the one that wins last.
pub(super) fn merge_sources(value: &Rc<Node>) -> Result<Vec<&Rc<Node>>, (Mark, String)> {
    let sources: Vec<_> = match &value.kind {
        Kind::Map(_) => vec![value],
        Kind::List(items) => items.iter().rev().collect(),
        Kind::Scalar(_) => Vec::new(),
    };
    let wrong = sources.iter().find(|source| source.as_map().is_none());
    match (wrong, &value.kind) {
        (None, Kind::Map(_) | Kind::List(_)) => Ok(sources),
        (wrong, _) => {
            let mark = wrong.map_or(value.mark, |wrong| wrong.mark);
            Err((
                mark,
                "`<<` merges a mapping or a list of mappings".to_owned(),
            ))
        }
    }
}

/// Pairs with each text key once.
#[derive(Default)]
pub(super) struct Merged {
    pub(super) pairs: Vec<Pair>,
    places: HashMap<Box<str>, usize>,
}

impl Merged {
    /// The number of pairs that [`Self::put`] would copy, if the key had a mapping before.
    pub(super) fn overlaid(&self, pair: &Pair) -> usize {
        let earlier = match (&pair.key.kind, &pair.value.kind) {
            (Kind::Scalar(key), Kind::Map(_)) if key.resolved == Resolved::Text => {
                self.places.get(&key.text)
            }
            _ => None,
        };
        let earlier = earlier.and_then(|at| self.pairs.get(*at));
        earlier
            .and_then(|earlier| earlier.value.as_map())
            .map_or(0, <[_]>::len)
    }

    /// Puts `pair` in the place of an earlier one with that key, and returns the earlier key.
    ///
    /// If both values are mappings, the later keys are added to the earlier ones: envoyproxy/ratelimit
    /// decodes both into one structure.
    pub(super) fn put(&mut self, mut pair: Pair) -> Option<(Mark, Box<str>)> {
        let Kind::Scalar(Scalar {
            text,
            resolved: Resolved::Text,
            ..
        }) = &pair.key.kind
        else {
            self.pairs.push(pair);
            return None;
        };
        let text = text.clone();
        let Some(&at) = self.places.get(&text) else {
            self.places.insert(text, self.pairs.len());
            self.pairs.push(pair);
            return None;
        };
        let earlier = self.pairs.get_mut(at)?;
        if let (Kind::Map(old), Kind::Map(new)) = (&earlier.value.kind, &pair.value.kind) {
            let pairs = overlay(old, new);
            pair.value = Rc::new(Node {
                mark: pair.value.mark,
                kind: Kind::Map(pairs),
            });
        }
        let repeated = (earlier.key.mark, text);
        *earlier = pair;
        Some(repeated)
    }
}

/// The pairs of both mappings; a later pair replaces an equal key. Not recursive.
fn overlay(old: &[Pair], new: &[Pair]) -> Vec<Pair> {
    let text_of = |pair: &Pair| match &pair.key.kind {
        Kind::Scalar(scalar) if scalar.resolved == Resolved::Text => Some(scalar.text.clone()),
        _ => None,
    };
    let replaced: HashMap<_, ()> = new
        .iter()
        .filter_map(|pair| Some((text_of(pair)?, ())))
        .collect();
    let kept = old
        .iter()
        .filter(|pair| text_of(pair).is_none_or(|text| !replaced.contains_key(&text)));
    let kept = kept.map(|pair| Pair {
        stale: true,
        ..pair.clone()
    });
    kept.chain(new.iter().cloned()).collect()
}
