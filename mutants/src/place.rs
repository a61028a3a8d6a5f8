//! The places of a file where switches stand.

use crate::changes::Genre;
use std::collections::BTreeSet;
use std::ops::Range;
use std::ptr;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A part of a file, in bytes.
pub(crate) type Bytes = Range<usize>;

/// Code: text of ours, and text of the file, in which there can be switches too.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Own(String),
    Of(Bytes),
}

/// Text that stands for a place if a change is on.
pub(crate) type Variant = (u32, Vec<Piece>);

/// A place, and the code with switches for it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) at: Bytes,
    pub(crate) form: Form,
}

/// The form of the code at a place.
#[derive(Debug)]
pub(crate) enum Form {
    /// A value of an expression is chosen by switches.
    Choice {
        variants: Vec<Variant>,
        original: Vec<Piece>,
    },
    /// A function returns at once.
    Return { id: u32, value: String },
    /// An arm of a match without a guard gets one.
    Guard { id: u32 },
    /// The word is left out.
    Nothing,
}

/// A change of the file.
#[derive(Debug)]
pub(crate) struct Located<'a> {
    pub(crate) id: u32,
    pub(crate) genre: Genre,
    pub(crate) replacement: &'a str,
    pub(crate) at: Bytes,
}

/// Finds the places of changes in a file. Functions stay `const` that `constants` names: no switch can stand in them.
pub(crate) fn places(
    file: &syn::File,
    changes: &[Located<'_>],
    constants: &BTreeSet<String>,
) -> Vec<Place> {
    let mut finder = Finder {
        changes,
        constants,
        places: Vec::new(),
        constant: 0,
    };
    finder.visit_file(file);
    let mut places = finder.places;
    // Outer places first, and before them what is put in at the same byte.
    places.sort_by_key(|place| {
        let is_choice = matches!(place.form, Form::Choice { .. });
        (place.at.start, is_choice, usize::MAX - place.at.end)
    });
    places
}

struct Finder<'a> {
    changes: &'a [Located<'a>],
    constants: &'a BTreeSet<String>,
    places: Vec<Place>,
    /// The number of contexts around that are evaluated when compiled.
    constant: usize,
}

impl Finder<'_> {
    /// The numbers and replacements of the changes of a genre that start at a byte. There are none in constants.
    fn at(&self, start: usize, genre: Genre) -> Vec<(u32, Bytes, String)> {
        if self.constant > 0 {
            return Vec::new();
        }
        let here = self.changes.iter();
        let here = here.filter(|it| it.genre == genre && it.at.start == start);
        here.map(|it| (it.id, it.at.clone(), it.replacement.to_owned()))
            .collect()
    }

    fn choice(&mut self, at: Bytes, variants: Vec<Variant>, original: Vec<Piece>) {
        if !variants.is_empty() {
            let form = Form::Choice { variants, original };
            self.places.push(Place { at, form });
        }
    }

    fn body(&mut self, block: &syn::Block) {
        let (Some(first), Some(last)) = (block.stmts.first(), block.stmts.last()) else {
            return;
        };
        let (start, end) = (bytes(first).start, bytes(last).end);
        for (id, at, value) in self.at(start, Genre::FnValue) {
            if at.end == end {
                let form = Form::Return { id, value };
                let at = start..start;
                self.places.push(Place { at, form });
            }
        }
    }

    /// Visits a function, which is no longer constant if it may not be.
    fn function(&mut self, sig: &syn::Signature, body: &syn::Block, visit: impl FnOnce(&mut Self)) {
        let stays = self.constants.contains(&sig.ident.to_string());
        if let Some(word) = sig.constness.filter(|_| !stays) {
            let (at, form) = (bytes(&word), Form::Nothing);
            self.places.push(Place { at, form });
        }
        let is_constant = sig.constness.is_some() && stays;
        self.constant += usize::from(is_constant);
        self.body(body);
        visit(self);
        self.constant -= usize::from(is_constant);
    }

    fn constant(&mut self, visit: impl FnOnce(&mut Self)) {
        self.constant += 1;
        visit(self);
        self.constant -= 1;
    }

    /// An arm that is taken away is one whose guard is false.
    fn taken_away(&mut self, arm: &syn::Arm) {
        for (id, ..) in self.at(bytes(arm).start, Genre::MatchArm) {
            match &arm.guard {
                None => {
                    let end = bytes(&arm.pat).end;
                    let (at, form) = (end..end, Form::Guard { id });
                    self.places.push(Place { at, form });
                }
                Some((_, guard)) if !has_let(guard) => {
                    let at = bytes(&**guard);
                    let never = vec![(id, vec![own("false")])];
                    self.choice(at.clone(), never, vec![Piece::Of(at)]);
                }
                Some(_) => {}
            }
        }
    }

    fn guard(&mut self, guard: &syn::Expr) {
        if has_let(guard) {
            return;
        }
        let whole = bytes(guard);
        let changes = self.at(whole.start, Genre::MatchArmGuard).into_iter();
        let variants = changes.filter(|(_, at, _)| at.end == whole.end);
        let variants = variants.map(|(id, _, value)| (id, vec![Piece::Own(value)]));
        let variants = variants.collect();
        self.choice(whole.clone(), variants, vec![Piece::Of(whole)]);
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, it: &'ast syn::ItemFn) {
        self.function(&it.sig, &it.block, |finder| {
            visit::visit_item_fn(finder, it)
        });
    }

    fn visit_impl_item_fn(&mut self, it: &'ast syn::ImplItemFn) {
        self.function(&it.sig, &it.block, |finder| {
            visit::visit_impl_item_fn(finder, it);
        });
    }

    fn visit_trait_item_fn(&mut self, it: &'ast syn::TraitItemFn) {
        if let Some(body) = &it.default {
            self.body(body);
        }
        visit::visit_trait_item_fn(self, it);
    }

    fn visit_item_const(&mut self, it: &'ast syn::ItemConst) {
        self.constant(|finder| visit::visit_item_const(finder, it));
    }

    fn visit_item_static(&mut self, it: &'ast syn::ItemStatic) {
        self.constant(|finder| visit::visit_item_static(finder, it));
    }

    fn visit_impl_item_const(&mut self, it: &'ast syn::ImplItemConst) {
        self.constant(|finder| visit::visit_impl_item_const(finder, it));
    }

    fn visit_trait_item_const(&mut self, it: &'ast syn::TraitItemConst) {
        self.constant(|finder| visit::visit_trait_item_const(finder, it));
    }

    fn visit_type(&mut self, it: &'ast syn::Type) {
        self.constant(|finder| visit::visit_type(finder, it));
    }

    fn visit_expr_const(&mut self, it: &'ast syn::ExprConst) {
        self.constant(|finder| visit::visit_expr_const(finder, it));
    }

    fn visit_expr_repeat(&mut self, it: &'ast syn::ExprRepeat) {
        self.visit_expr(&it.expr);
        self.constant(|finder| finder.visit_expr(&it.len));
    }

    fn visit_expr_binary(&mut self, it: &'ast syn::ExprBinary) {
        let operator = bytes(&it.op);
        if !has_let(&it.left) && !has_let(&it.right) {
            let make = |operator: Piece| {
                let (left, right) = (Piece::Of(bytes(&*it.left)), Piece::Of(bytes(&*it.right)));
                vec![
                    own("(("),
                    left,
                    own(") "),
                    operator,
                    own(" ("),
                    right,
                    own("))"),
                ]
            };
            let changes = self.at(operator.start, Genre::BinaryOperator).into_iter();
            let variants = changes.map(|(id, _, operator)| (id, make(Piece::Own(operator))));
            let variants = variants.collect();
            self.choice(bytes(it), variants, make(Piece::Of(operator)));
        }
        visit::visit_expr_binary(self, it);
    }

    fn visit_expr_unary(&mut self, it: &'ast syn::ExprUnary) {
        let (whole, operand) = (bytes(it), bytes(&*it.expr));
        let changes = self.at(whole.start, Genre::UnaryOperator).into_iter();
        let bare = vec![own("("), Piece::Of(operand.clone()), own(")")];
        let variants = changes.map(|(id, ..)| (id, bare.clone())).collect();
        let original = [Piece::Of(bytes(&it.op))].into_iter().chain(bare).collect();
        self.choice(whole, variants, original);
        visit::visit_expr_unary(self, it);
    }

    fn visit_arm(&mut self, it: &'ast syn::Arm) {
        self.taken_away(it);
        if let Some((_, guard)) = &it.guard {
            self.guard(guard);
        }
        visit::visit_arm(self, it);
    }

    fn visit_expr_struct(&mut self, it: &'ast syn::ExprStruct) {
        if let Some(rest) = &it.rest {
            let mut variants = Vec::new();
            for field in &it.fields {
                let changes = self.at(bytes(field).start, Genre::StructField);
                variants.extend(
                    changes
                        .iter()
                        .map(|(id, ..)| (*id, without(it, field, rest))),
                );
            }
            self.choice(bytes(it), variants, vec![Piece::Of(bytes(it))]);
        }
        visit::visit_expr_struct(self, it);
    }
}

/// A structure that takes one more field from `rest`.
fn without(whole: &syn::ExprStruct, field: &syn::FieldValue, rest: &syn::Expr) -> Vec<Piece> {
    let mut pieces = vec![Piece::Of(bytes(&whole.path)), own(" { ")];
    for other in whole.fields.iter().filter(|it| !ptr::eq(*it, field)) {
        pieces.extend([Piece::Of(bytes(other)), own(", ")]);
    }
    pieces.extend([own(".."), Piece::Of(bytes(rest)), own(" }")]);
    pieces
}

fn own(text: &str) -> Piece {
    Piece::Own(text.to_owned())
}

fn bytes(of: &impl Spanned) -> Bytes {
    of.span().byte_range()
}

/// Returns true for a condition with a `let`, which cannot be inside of a value.
fn has_let(condition: &syn::Expr) -> bool {
    match condition {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(it) if matches!(it.op, syn::BinOp::And(_)) => {
            has_let(&it.left) || has_let(&it.right)
        }
        _ => false,
    }
}
