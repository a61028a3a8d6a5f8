//! Builds the tree from the parser's events, within bounds.

use std::rc::Rc;

use hashbrown::{HashMap, HashSet};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, Tag};

use super::merge::{Merged, is_merge, merge_sources};
use super::scalar::{resolve_plain, resolve_tagged};
use super::tabs::{blank_after_colons, blank_tabs, quotes_end_on_their_lines};
use super::{Kind, Node, Pair, Resolved, Scalar};
use crate::mark::Mark;

/// The deepest nesting of mappings and lists: deeper than any request's descriptor is long.
const DEPTH_MAX: usize = 400;

/// The most nodes, each alias counted as often as it is used: a few aliases of aliases of aliases
/// (a "billion laughs") would exhaust memory.
const NODES_MAX: usize = 1_000_000;

/// The result of reading the first document of a text.
#[derive(Debug, Default)]
pub(crate) struct Built {
    /// [`None`] if the text has no document, or a broken one.
    pub(crate) root: Option<Rc<Node>>,
    pub(crate) error: Option<(Mark, String)>,
    /// Keys that a later pair of the same mapping repeats.
    pub(crate) repeated: Vec<(Mark, Box<str>)>,
    /// Keys that a later `<<` of the same mapping brings along as well.
    pub(crate) covered: Vec<(Mark, Box<str>)>,
    /// The start of a second document.
    pub(crate) more: Option<Mark>,
    /// The first alias.
    pub(crate) alias: Option<Mark>,
}

/// The most characters to read again because of tabs in odd places.
const REREAD_CHARS_MAX: usize = 20_000_000;

/// Reads the first document of `text`; like envoyproxy/ratelimit, it does not look at a later one.
///
/// The parser of envoyproxy/ratelimit takes `key:<tab>value`, ours does not. A tab that is certain
/// to separate becomes a space at once. Elsewhere the parser has to say first at which value it
/// stopped, and the text is read again.
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

/// Reads the document. Also returns the start of the value at which the parser stumbled over tabs.
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
        covered,
        more,
        alias,
        ..
    } = builder;
    let good = error.is_none();
    let (root, more) = if good { (root, more) } else { (None, None) };
    (
        Built {
            root,
            error,
            repeated,
            covered,
            more,
            alias,
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

/// A mapping or list whose end has not been read yet.
struct Open {
    mark: Mark,
    anchor: usize,
    /// Nodes in it so far, aliases counted with all that they contain.
    weight: usize,
    /// True if it is written with `{` or `[`.
    flow: bool,
    kind: OpenKind,
}

enum OpenKind {
    List(Vec<Rc<Node>>),
    /// Pairs, and the key whose value comes next.
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
    covered: Vec<(Mark, Box<str>)>,
    more: Option<Mark>,
    alias: Option<Mark>,
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

    /// Refuses tabs in a line's indentation: the parser of envoyproxy/ratelimit does, ours takes
    /// them.
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

    /// Refuses plain text within `{}` or `[]` that YAML 1.1 reads as the start of another
    /// construct.
    fn check_plain(&self, text: &str, plain: bool, mark: Mark) -> Step {
        if plain && self.in_flow() && text.starts_with(['|', '>', '?', ':']) {
            // The message has the first character only: the text may be a secret.
            let first = text.get(..1).unwrap_or_default();
            let message =
                format!("what starts with '{first}' cannot stand within {{}} or [] without quotes");
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
        self.alias.get_or_insert(mark);
        let Some(Anchored { node, weight }) = self.anchors.get(&anchor) else {
            return Err((mark, "recursive alias".to_owned()));
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

    /// Puts the pairs that `<<` merges in its place, and lets the last of equal keys win.
    fn flatten(&mut self, pairs: Vec<Pair>) -> Result<Vec<Pair>, (Mark, String)> {
        let mut map = Merged::default();
        let mut merged_marks = HashSet::new();
        for pair in pairs {
            if !is_merge(&pair.key) {
                // Repeating a mapping copies it, so it has to be paid for again.
                self.spend(pair.key.mark, map.overlaid(&pair))?;
                let repeated = map.put(pair);
                // Overriding merged keys is the purpose of a merge, so that is not a repetition.
                let repeated = repeated.filter(|(mark, _)| !merged_marks.contains(mark));
                self.repeated.extend(repeated);
                continue;
            }
            for source in merge_sources(&pair.value)? {
                self.spend(source.mark, source.as_map().map_or(0, <[_]>::len))?;
                for merged in source.as_map().unwrap_or_default() {
                    merged_marks.insert(merged.key.mark);
                    self.spend(source.mark, map.overlaid(merged))?;
                    // Of several sources each may have what another one has.
                    let covered = map.put(merged.clone());
                    let covered = covered.filter(|(mark, _)| !merged_marks.contains(mark));
                    self.covered.extend(covered);
                }
            }
        }
        Ok(map.pairs)
    }
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
