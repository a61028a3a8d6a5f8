//! Paths in Rust source, and which code is only for tests.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// A path of the crate: the segments after `crate`, or after so many `super`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CratePath {
    /// The number of `super`; [`None`] if it starts with `crate`.
    pub(crate) ups: Option<usize>,
    pub(crate) segments: Vec<String>,
}

/// The code of a file without what is only compiled for tests, and the modules with files of their own that are.
#[derive(Default)]
pub(crate) struct WithoutTests {
    pub(crate) tokens: Vec<TokenTree>,
    pub(crate) modules: Vec<String>,
}

impl WithoutTests {
    pub(crate) fn of(tokens: TokenStream) -> Self {
        let mut without = Self::default();
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            let attribute = match (&token, tokens.peek()) {
                (TokenTree::Punct(hash), Some(TokenTree::Group(group)))
                    if hash.as_char() == '#' =>
                {
                    group.stream().to_string()
                }
                _ => String::new(),
            };
            if attribute.starts_with("cfg") && is_for_tests(&attribute) {
                tokens.next();
                let item = item(&mut tokens);
                without.modules.extend(file_module(&item));
            } else {
                without.tokens.push(token);
            }
        }
        without
    }
}

/// Returns true if the attribute asks for `test`.
fn is_for_tests(attribute: &str) -> bool {
    let mut words = attribute.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '"');
    let is_open = attribute.contains("not") || attribute.contains("any");
    words.any(|word| word == "test") && !is_open
}

/// The tokens of the next item.
fn item(tokens: &mut impl Iterator<Item = TokenTree>) -> Vec<TokenTree> {
    let mut item = Vec::new();
    let mut is_use = false;
    for token in tokens {
        let ends = match &token {
            TokenTree::Punct(punct) => punct.as_char() == ';',
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace && !is_use,
            TokenTree::Ident(word) => {
                is_use |= *word == "use";
                false
            }
            TokenTree::Literal(_) => false,
        };
        item.push(token);
        if ends {
            break;
        }
    }
    item
}

/// The name of a module in a file of its own.
fn file_module(item: &[TokenTree]) -> Option<String> {
    match item {
        [
            ..,
            TokenTree::Ident(word),
            TokenTree::Ident(name),
            TokenTree::Punct(_),
        ] if *word == "mod" => Some(name.to_string()),
        _ => None,
    }
}

/// All paths of the crate in code whose module is `depth` modules below the root of its file.
pub(crate) fn paths(tokens: &[TokenTree], depth: usize) -> Vec<CratePath> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token {
            TokenTree::Ident(word) if *word == "crate" || *word == "super" => {
                at = path(tokens, at, depth, &mut found);
                continue;
            }
            TokenTree::Ident(word) if *word == "mod" => {
                if let Some(TokenTree::Group(body)) = tokens.get(at + 2) {
                    found.extend(paths(&within(body), depth + 1));
                    at += 3;
                    continue;
                }
            }
            TokenTree::Group(group) => found.extend(paths(&within(group), depth)),
            _ => {}
        }
        at += 1;
    }
    found
}

/// The tokens in brackets, without those of tests.
fn within(group: &Group) -> Vec<TokenTree> {
    WithoutTests::of(group.stream()).tokens
}

/// Reads the path that starts at `at`; returns where it ends.
fn path(tokens: &[TokenTree], at: usize, depth: usize, found: &mut Vec<CratePath>) -> usize {
    let is_super = |token: &TokenTree| matches!(token, TokenTree::Ident(word) if *word == "super");
    let mut ups = is_super(&tokens[at]).then_some(1);
    let mut end = at + 1;
    if let Some(ups) = &mut ups {
        while is_colons(tokens, end) && tokens.get(end + 2).is_some_and(is_super) {
            *ups += 1;
            end += 3;
        }
    }
    if !is_colons(tokens, end) {
        return end;
    }
    let ups = match ups {
        // It stays within its file.
        Some(ups) if ups <= depth => return end,
        ups => ups.map(|ups| ups - depth),
    };
    let (trees, end) = tree(tokens, end + 2);
    found.extend(
        trees
            .into_iter()
            .map(|segments| CratePath { ups, segments }),
    );
    end
}

fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    let is_colon = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    is_colon(tokens.get(at)) && is_colon(tokens.get(at + 1))
}

/// The paths of the tree that starts at `at`, and where it ends.
pub(crate) fn tree(tokens: &[TokenTree], at: usize) -> (Vec<Vec<String>>, usize) {
    match tokens.get(at) {
        Some(TokenTree::Ident(word)) if is_colons(tokens, at + 1) => {
            let (mut trees, end) = tree(tokens, at + 3);
            for tree in &mut trees {
                tree.insert(0, word.to_string());
            }
            if trees.is_empty() {
                trees.push(vec![word.to_string()]);
            }
            (trees, end)
        }
        Some(TokenTree::Ident(word)) => match tokens.get(at + 1..at + 3) {
            // Exported under another name, which others use.
            Some([TokenTree::Ident(renamed), TokenTree::Ident(name)]) if *renamed == "as" => {
                (vec![vec![word.to_string(), name.to_string()]], at + 3)
            }
            _ => (vec![vec![word.to_string()]], at + 1),
        },
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            let (mut trees, mut next) = (Vec::new(), 0);
            while next < inner.len() {
                let (more, end) = tree(&inner, next);
                trees.extend(more);
                // Past the comma.
                next = end + 1;
            }
            (trees, at + 1)
        }
        _ => (Vec::new(), at + 1),
    }
}
