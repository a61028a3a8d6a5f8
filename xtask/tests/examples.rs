//! Each public item of the library has an example, which its doc tests compile.

mod repository;

use repository::texts;

/// The words that open a public item.
const ITEMS: [&str; 8] = [
    "pub fn ",
    "pub const fn ",
    "pub async fn ",
    "pub struct ",
    "pub enum ",
    "pub trait ",
    "pub type ",
    "pub const ",
];

#[test]
fn each_public_item_of_the_library_has_an_example() {
    let mut items = 0;
    let mut without = Vec::new();
    for (file, text) in texts(&["crates/ratekeeper/src/*.rs"]) {
        let (all, bare) = public_items(&text);
        items += all;
        without.extend(bare.into_iter().map(|item| format!("{file}: {item}")));
    }
    assert!(items > 60, "{items} items were found");
    assert!(without.is_empty(), "without an example: {without:#?}");
}

#[test]
fn items_without_an_example_are_found() {
    let text = "
        /// Has one.
        /// ```
        /// example();
        /// ```
        #[must_use]
        pub fn example() {}

        /// Has none.
        pub struct Bare;

        /// Is not for readers.
        #[cfg_attr(
            all(),
            doc(hidden)
        )]
        #[doc(hidden)]
        pub enum Hidden {}
    ";
    assert_eq!(public_items(text), (2, vec!["pub struct Bare;".to_owned()]));
}

/// The number of public items, and the lines of those without an example.
fn public_items(text: &str) -> (usize, Vec<String>) {
    let (mut items, mut without) = (0, Vec::new());
    let mut above = String::new();
    let mut is_attribute_open = false;
    for line in text.lines().map(str::trim) {
        let is_above = line.starts_with("///") || line.starts_with("#[") || is_attribute_open;
        if is_above {
            is_attribute_open = !line.starts_with("///") && !line.ends_with(']');
            above.push_str(line);
            continue;
        }
        let is_hidden = above.contains("#[doc(hidden)]");
        if !is_hidden && ITEMS.iter().any(|item| line.starts_with(item)) {
            items += 1;
            if !above.contains("```") {
                without.push(line.to_owned());
            }
        }
        above.clear();
    }
    (items, without)
}
