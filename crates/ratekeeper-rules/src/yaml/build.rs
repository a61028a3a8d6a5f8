//! From the parser's events to the tree, within bounds.

use std::rc::Rc;

use hashbrown::HashMap;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, Tag};

use super::scalar::{resolve_plain, resolve_tagged};
use super::{Kind, Mark, Node, Pair, Resolved, Scalar};

/// Nesting of mappings and lists: more than any request's descriptor is long.
const DEPTH_MAX: usize = 400;

/// Nodes, each alias counted as often as it is used: what a few aliases of aliases of aliases
/// (a "billion laughs") would blow up.
const NODES_MAX: usize = 1_000_000;

/// The first document of a text.
#[derive(Debug, Default)]
pub(crate) struct Built {
    /// [`None`] if the text has no document, or a broken one.
    pub(crate) root: Option<Rc<Node>>,
    pub(crate) error: Option<(Mark, String)>,
    /// Keys that were given again later in the same mapping.
    pub(crate) repeated: Vec<(Mark, Box<str>)>,
    /// Where a second document starts.
    pub(crate) more: Option<Mark>,
}

/// Characters that are read again at most because of tabs in odd places.
const REREAD_CHARS_MAX: usize = 20_000_000;

/// Reads the first document of `text`; a later one is not even looked at, as the incumbent does.
///
/// The incumbent's parser takes `key:<tab>value`, ours does not. Where it is certain that such a
/// tab separates, it is made a space at once; elsewhere after the parser has said at which value
/// it stopped, by reading all again.
pub(crate) fn build(text: &str) -> Built {
    let mut text: Vec<char> = text.chars().collect();
    if text.contains(&'\t') && quotes_end_on_their_lines(&text) {
        text.split_mut(|&character| character == '\n')
            .for_each(blank_after_colons);
    }
    let again = REREAD_CHARS_MAX / text.len().max(1);
    for _ in 0..again {
        let (built, tab) = attempt(&text);
        match tab {
            Some(value) if blank_tabs(&mut text, value) => {}
            _ => return built,
        }
    }
    attempt(&text).0
}

/// Whether no text goes on over the end of a line: no quotes are left open, no block begins.
fn quotes_end_on_their_lines(text: &[char]) -> bool {
    text.split(|&character| character == '\n').all(|line| {
        let count = |quote| line.iter().filter(|&&character| character == quote).count();
        count('"').is_multiple_of(2)
            && count('\'').is_multiple_of(2)
            && count('|') + count('>') == 0
    })
}

/// Makes spaces of the tabs after colons in a line without quotes.
fn blank_after_colons(line: &mut [char]) {
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

/// Makes spaces of the tabs before `end`; false if there are none.
fn blank_tabs(text: &mut [char], end: usize) -> bool {
    let before = text.get_mut(..end).unwrap_or_default();
    let tabs = before
        .iter_mut()
        .rev()
        .take_while(|character| **character == '\t');
    tabs.map(|tab| *tab = ' ').count() > 0
}

/// The document, or what is wrong with it; and the value whose tabs the parser cannot take.
fn attempt(text: &[char]) -> (Built, Option<usize>) {
    let mut builder = Builder {
        text,
        ..Builder::default()
    };
    let mut parser = Parser::new_from_iter(text.iter().copied());
    let (error, tab) = loop {
        match parser.next_event() {
            None => break (None, None),
            Some(Err(error)) => break (Some(scan_error(&error)), tab_before(&error)),
            Some(Ok((Event::DocumentEnd, _))) => {
                builder.more = second_document(&mut parser);
                break (None, None);
            }
            Some(Ok((event, span))) => {
                if let Err(error) = builder.take(event, span) {
                    break (Some(error), None);
                }
            }
        }
    };
    let Builder {
        root,
        repeated,
        more,
        ..
    } = builder;
    let good = error.is_none();
    let (root, more) = if good { (root, more) } else { (None, None) };
    (
        Built {
            root,
            error,
            repeated,
            more,
        },
        tab,
    )
}

fn tab_before(error: &ScanError) -> Option<usize> {
    error
        .info()
        .starts_with("':' must be followed")
        .then(|| error.marker().index())
}

fn scan_error(error: &ScanError) -> (Mark, String) {
    (mark_at(error.marker()), error.info().to_owned())
}

fn second_document<'a>(
    parser: &mut impl Iterator<Item = Result<(Event<'a>, Span), ScanError>>,
) -> Option<Mark> {
    match parser.next() {
        Some(Ok((Event::DocumentStart(_), span))) => Some(mark_at(&span.start)),
        _ => None,
    }
}

fn mark_at(marker: &Marker) -> Mark {
    Mark {
        line: u32::try_from(marker.line()).unwrap_or(u32::MAX).max(1),
        column: u32::try_from(marker.col())
            .unwrap_or(u32::MAX)
            .saturating_add(1),
        length: 1,
    }
}

fn mark_of(span: &Span) -> Mark {
    let mut mark = mark_at(&span.start);
    if span.end.line() == span.start.line() {
        let length = span.end.col().saturating_sub(span.start.col());
        mark.length = u32::try_from(length).unwrap_or(u32::MAX).max(1);
    }
    mark
}

/// A mapping or list that is not at its end yet.
struct Open {
    mark: Mark,
    anchor: usize,
    /// Nodes in it so far, aliases counted with all that they stand for.
    weight: usize,
    /// Written with `{` or `[`.
    flow: bool,
    kind: OpenKind,
}

enum OpenKind {
    List(Vec<Rc<Node>>),
    /// Pairs, and the key that waits for its value.
    Map(Vec<Pair>, Option<Rc<Node>>),
}

struct Anchored {
    node: Rc<Node>,
    weight: usize,
}

#[derive(Default)]
struct Builder<'t> {
    text: &'t [char],
    open: Vec<Open>,
    anchors: HashMap<usize, Anchored>,
    root: Option<Rc<Node>>,
    repeated: Vec<(Mark, Box<str>)>,
    more: Option<Mark>,
    weight: usize,
}

type Step = Result<(), (Mark, String)>;

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, span: Span) -> Step {
        let mark = mark_of(&span);
        let start = span.start.index();
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.check_place(mark, start)?;
                let plain = style == ScalarStyle::Plain && tag.is_none();
                self.check_plain(&text, plain, mark)?;
                let resolved = resolve(&text, style, tag.as_deref(), mark)?;
                let scalar = Scalar {
                    text: text.into(),
                    resolved,
                    plain,
                };
                self.add(
                    Rc::new(Node {
                        mark,
                        kind: Kind::Scalar(scalar),
                    }),
                    anchor,
                    1,
                )
            }
            Event::SequenceStart(anchor, _) => {
                self.enter(mark, start, anchor, OpenKind::List(Vec::new()))
            }
            Event::MappingStart(anchor, _) => {
                self.enter(mark, start, anchor, OpenKind::Map(Vec::new(), None))
            }
            Event::SequenceEnd | Event::MappingEnd => self.leave(),
            Event::Alias(anchor) => self.alias(mark, anchor),
            _ => Ok(()),
        }
    }

    fn in_flow(&self) -> bool {
        self.open.last().is_some_and(|open| open.flow)
    }

    /// Between the start of a line and what stands first in it there are no tabs, to the
    /// incumbent's parser; ours takes them.
    fn check_place(&self, mark: Mark, start: usize) -> Step {
        if self.in_flow() {
            return Ok(());
        }
        let before = self.text.get(..start).unwrap_or_default().iter().rev();
        let mut tab = false;
        for &character in before.take(mark.column as usize - 1) {
            match character {
                '\t' => tab = true,
                ' ' | '-' | '?' | ':' => {}
                _ => return Ok(()),
            }
        }
        if tab {
            return Err((mark, "a tab cannot indent: use spaces".to_owned()));
        }
        Ok(())
    }

    /// Plain text within `{}` or `[]` that YAML 1.1 takes for the start of something else.
    fn check_plain(&self, text: &str, plain: bool, mark: Mark) -> Step {
        if plain && self.in_flow() && text.starts_with(['|', '>', '?', ':']) {
            let message = format!("'{text}' cannot stand within {{}} or [] without quotes");
            return Err((mark, message));
        }
        Ok(())
    }

    fn enter(&mut self, mark: Mark, start: usize, anchor: usize, kind: OpenKind) -> Step {
        self.check_place(mark, start)?;
        if self.open.len() >= DEPTH_MAX {
            return Err((mark, format!("nested more than {DEPTH_MAX} deep")));
        }
        let flow = self.in_flow() || matches!(self.text.get(start), Some('{' | '['));
        self.open.push(Open {
            mark,
            anchor,
            weight: 1,
            flow,
            kind,
        });
        Ok(())
    }

    fn leave(&mut self) -> Step {
        let Some(Open {
            mark,
            anchor,
            weight,
            kind,
            ..
        }) = self.open.pop()
        else {
            return Ok(());
        };
        let kind = match kind {
            OpenKind::List(items) => Kind::List(items),
            OpenKind::Map(pairs, _) => Kind::Map(self.flatten(pairs)?),
        };
        self.add(Rc::new(Node { mark, kind }), anchor, weight)
    }

    fn alias(&mut self, mark: Mark, anchor: usize) -> Step {
        let Some(Anchored { node, weight }) = self.anchors.get(&anchor) else {
            return Err((mark, "this alias is inside of what it names".to_owned()));
        };
        let (node, weight) = (Rc::clone(node), *weight);
        self.spend(mark, weight)?;
        self.put(node, weight);
        Ok(())
    }

    fn add(&mut self, node: Rc<Node>, anchor: usize, weight: usize) -> Step {
        self.spend(node.mark, 1)?;
        if anchor != 0 {
            self.anchors.insert(
                anchor,
                Anchored {
                    node: Rc::clone(&node),
                    weight,
                },
            );
        }
        self.put(node, weight);
        Ok(())
    }

    fn spend(&mut self, mark: Mark, weight: usize) -> Step {
        self.weight = self.weight.saturating_add(weight);
        if self.weight > NODES_MAX {
            let message = format!("more than {NODES_MAX} values, counting each alias as a copy");
            return Err((mark, message));
        }
        Ok(())
    }

    fn put(&mut self, node: Rc<Node>, weight: usize) {
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return;
        };
        open.weight = open.weight.saturating_add(weight);
        match &mut open.kind {
            OpenKind::List(items) => items.push(node),
            OpenKind::Map(pairs, waiting) => match waiting.take() {
                None => *waiting = Some(node),
                Some(key) => pairs.push(Pair {
                    key,
                    value: node,
                    stale: false,
                }),
            },
        }
    }

    /// Puts what `<<` merges in its place, and lets the last of equal keys win.
    fn flatten(&mut self, pairs: Vec<Pair>) -> Result<Vec<Pair>, (Mark, String)> {
        let mut map = Merged::default();
        for pair in pairs {
            if !is_merge(&pair.key) {
                if let Some(repeated) = map.put(pair) {
                    self.repeated.push(repeated);
                }
                continue;
            }
            for source in merge_sources(&pair.value)? {
                self.spend(source.mark, source.as_map().map_or(0, <[_]>::len))?;
                for merged in source.as_map().unwrap_or_default() {
                    // To override what was merged is what a merge is for: nothing to report.
                    map.put(merged.clone());
                }
            }
        }
        Ok(map.pairs)
    }
}

fn is_merge(key: &Node) -> bool {
    matches!(&key.kind, Kind::Scalar(scalar) if scalar.plain && &*scalar.text == "<<")
}

/// The mappings to merge, the one that wins last.
fn merge_sources(value: &Rc<Node>) -> Result<Vec<&Rc<Node>>, (Mark, String)> {
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
struct Merged {
    pairs: Vec<Pair>,
    places: HashMap<Box<str>, usize>,
}

impl Merged {
    /// Puts `pair` in the place of an earlier one with that key, which is returned.
    ///
    /// Where both are mappings the later one's keys are added to the earlier one's: so does the
    /// incumbent, since it decodes both into one structure.
    fn put(&mut self, mut pair: Pair) -> Option<(Mark, Box<str>)> {
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

/// The pairs of both, the later one's in place of equal ones; not deeper.
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

fn resolve(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    mark: Mark,
) -> Result<Resolved, (Mark, String)> {
    let Some(tag) = tag else {
        let plain = style == ScalarStyle::Plain;
        return Ok(if plain {
            resolve_plain(text)
        } else {
            Resolved::Text
        });
    };
    if !tag.is_yaml_core_schema() {
        return Ok(Resolved::Text);
    }
    let suffix = &tag.suffix;
    if suffix == "binary" {
        return Err((
            mark,
            "`!!binary` is not understood here; write the text itself".to_owned(),
        ));
    }
    resolve_tagged(suffix, text).ok_or_else(|| (mark, format!("this is no `!!{suffix}`")))
}
