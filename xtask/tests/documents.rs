//! Links in the documentation lead somewhere, and the book has every page.

mod repository;

use std::collections::BTreeMap;

use repository::{read, root, texts};

/// Pages of the book link to files outside `docs/` by this address, since the book does not contain them.
const REPOSITORY: &str = "https://github.com/ratekeeper/ratekeeper/blob/main/";

/// Pages in `docs/` that the book shows in another way than by a chapter.
const NO_CHAPTER: [&str; 1] = ["docs/SUMMARY.md"];

#[test]
fn links_and_anchors_lead_somewhere() {
    let pages = pages();
    let headings: BTreeMap<&str, Vec<String>> = pages
        .iter()
        .map(|(page, text)| (page.as_str(), headings(text)))
        .collect();
    let mut broken = Vec::new();
    for (page, text) in &pages {
        for link in links(text) {
            let Some(target) = Target::of(page, link) else {
                continue;
            };
            let exists = root().join(&target.path).exists();
            let anchors = headings.get(target.path.as_str());
            let has_anchor = target.anchor.is_none_or(|anchor| {
                anchors.is_none_or(|anchors| anchors.iter().any(|known| known == anchor))
            });
            if !exists || !has_anchor {
                broken.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn the_book_has_every_page_of_the_manual() {
    let pages = pages();
    let summary = &pages["docs/SUMMARY.md"];
    let chapters: Vec<String> = links(summary)
        .into_iter()
        .filter_map(|link| Target::of("docs/SUMMARY.md", link))
        .map(|target| target.path)
        .collect();
    for page in pages.keys() {
        let is_chapter = !page.starts_with("docs/")
            || NO_CHAPTER.contains(&page.as_str())
            || chapters.contains(page);
        assert!(is_chapter, "docs/SUMMARY.md does not list {page}");
    }
}

#[test]
fn pages_of_the_book_do_not_link_out_of_it_by_path() {
    for (page, text) in pages() {
        if !page.starts_with("docs/") {
            continue;
        }
        for link in links(&text) {
            let is_path = !link.contains("://");
            let target = Target::of(&page, link);
            let leaves = target.is_some_and(|target| !target.path.starts_with("docs/"));
            assert!(
                !(is_path && leaves),
                "{page} links to {link}, which the book does not contain: write {REPOSITORY}…"
            );
        }
    }
}

#[test]
fn readme_opens_with_its_commands_and_shows_a_rule_and_the_dashboard_before_numbers() {
    const SCREEN: usize = 30;
    let pages = pages();
    let lines: Vec<&str> = pages["README.md"].lines().collect();
    let first = |what: &str| {
        let found = lines.iter().position(|line| line.contains(what));
        found.unwrap_or_else(|| panic!("README.md has no {what}"))
    };
    let shown = [
        "`cargo xtask run`",
        "`cargo xtask test`",
        "```yaml",
        "](docs/dashboard",
    ];
    for what in shown {
        assert!(first(what) < SCREEN, "{what} is not in the first screen");
        assert!(first(what) < first(" %"), "a percentage is before {what}");
    }
}

#[test]
fn shell_blocks_can_be_pasted() {
    for (page, text) in pages() {
        assert!(
            !text.contains("```console"),
            "{page}: write commands as ```sh without prompts, and what they print as ```text"
        );
        for block in text.split("```sh\n").skip(1) {
            let block = block.split("```").next().unwrap_or_default();
            let prompt = block.lines().find(|line| line.starts_with("$ "));
            assert_eq!(prompt, None, "{page}: leave the prompt out");
            if let Some(hasty) = asked_too_soon(block) {
                panic!(
                    "{page}: wait until the server answers (`until curl …; do sleep 1; done`) before: {hasty}"
                );
            }
        }
    }
}

/// A page whose commands serve, and which explains where rules are found.
const EXPLAINS_RULES: &str = "docs/configuration.md";

/// Outside of a clone there are no rules in `./config`, and such a command is refused.
#[test]
fn pages_that_serve_have_rules() {
    for (page, text) in pages() {
        if page == EXPLAINS_RULES || has_rules(&text) {
            continue;
        }
        for block in text.split("```sh\n").skip(1) {
            let block = block.split("```").next().unwrap_or_default();
            if let Some(command) = serves_without_rules(block) {
                panic!("{page}: name the rules, or say that it is a clone where to run: {command}");
            }
        }
    }
}

/// Returns true if the page works in a clone, which has example rules, or has settings that name rules.
fn has_rules(page: &str) -> bool {
    let names_rules = |line: &str| line.trim_start().starts_with("rules: ");
    page.contains(" clone") || page.lines().any(names_rules)
}

/// The first command of a block that serves, and names neither rules nor settings.
fn serves_without_rules(block: &str) -> Option<String> {
    const SOURCES: [&str; 3] = ["--rules", "--config", "--service"];
    let commands = block.replace("\\\n", " ");
    let mut serving = commands.lines().filter(|line| {
        let command = line.split(" #").next().unwrap_or_default();
        command.contains("ratekeeper serve") || command.contains("ratekeeper gateway")
    });
    let found = serving.find(|line| !SOURCES.iter().any(|source| line.contains(source)));
    found.map(str::to_owned)
}

#[test]
fn a_command_that_serves_without_rules_is_found() {
    let bare = "ratekeeper serve --headers github &\n";
    assert!(serves_without_rules(bare).is_some());
    let named = "ratekeeper serve --headers github \\\n  --rules rules.yaml &\n";
    assert_eq!(serves_without_rules(named), None);
    assert!(!has_rules("```yaml\nauth: { domain: api }\n```\n"));
    assert!(has_rules("```yaml\nrules: rules.yaml\n```\n"));
}

/// The first line that asks a server which an earlier line of the block has started, where none waits for it.
fn asked_too_soon(block: &str) -> Option<&str> {
    let starts = |line: &str| {
        let command = line.split(" #").next().unwrap_or_default().trim_end();
        command.contains("ratekeeper") && command.ends_with('&')
    };
    let mut lines = block.lines().skip_while(|line| !starts(line));
    let first = lines.find(|line| line.contains("curl "))?;
    (!first.contains("until ")).then_some(first)
}

#[test]
fn a_block_that_does_not_wait_is_found() {
    let hasty = "ratekeeper serve &   # here\ncurl -s http://127.0.0.1:8080/readyz\n";
    assert_eq!(asked_too_soon(hasty), hasty.lines().nth(1));
    let patient = hasty.replace("curl", "until curl");
    assert_eq!(asked_too_soon(&patient), None);
    assert_eq!(
        asked_too_soon("curl -s http://127.0.0.1:8080/readyz\n"),
        None
    );
}

#[test]
fn the_reference_of_the_admin_api_lists_every_route() {
    let (code, page) = (
        read("crates/ratekeeper-server/src/admin.rs"),
        read("docs/admin.md"),
    );
    let calls = code.split(".route(").skip(1);
    let paths = calls.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
    let routes: Vec<&str> = paths.collect();
    assert!(routes.len() >= 20, "the routes have moved: {routes:?}");
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    for route in routes {
        let is_page = route.starts_with("/dashboard") || route == "/";
        let listed = is_page || rows.iter().any(|row| row.contains(&format!("{route}`")));
        assert!(listed, "docs/admin.md does not list {route}");
    }
}

#[test]
fn a_heading_becomes_the_anchor_that_web_sites_make_of_it() {
    for (heading, anchor) in [
        ("Permits", "permits"),
        ("What's *in* `a_b` (or not)?", "whats-in-a_b-or-not"),
        (
            "Coming from NGINX `limit_req`",
            "coming-from-nginx-limit_req",
        ),
        ("A [link](x.md), and more", "a-link-and-more"),
    ] {
        assert_eq!(anchor_of(heading), anchor);
    }
}

/// The target of a link within the repository.
struct Target<'a> {
    /// The path from the root of the repository.
    path: String,
    anchor: Option<&'a str>,
}

impl<'a> Target<'a> {
    /// None for links to elsewhere.
    fn of(page: &str, link: &'a str) -> Option<Target<'a>> {
        let (path, anchor) = match link.split_once('#') {
            Some((path, anchor)) => (path, Some(anchor)),
            None => (link, None),
        };
        let path = match path.strip_prefix(REPOSITORY) {
            Some(path) => path.to_owned(),
            None if path.contains("://") || path.starts_with("mailto:") => return None,
            None if path.is_empty() && anchor.is_none() => return None,
            None if path.is_empty() => page.to_owned(),
            None => joined(page, path),
        };
        Some(Target { path, anchor })
    }
}

/// `path` as `page` writes it, from the root of the repository.
fn joined(page: &str, path: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Every Markdown file, with its text.
fn pages() -> BTreeMap<String, String> {
    texts(&["*.md"])
}

/// The lines outside code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The targets of `[text](target)`.
fn links(text: &str) -> Vec<&str> {
    let after = prose(text).flat_map(|line| line.split("](").skip(1));
    after.filter_map(|rest| rest.split(')').next()).collect()
}

/// The anchors of a page's headings.
fn headings(text: &str) -> Vec<String> {
    let headings = prose(text).filter_map(|line| {
        let heading = line.trim_start_matches('#');
        (heading.len() < line.len()).then(|| heading.strip_prefix(' '))?
    });
    headings.map(anchor_of).collect()
}

/// The anchor that GitHub and mdBook give a heading.
fn anchor_of(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    // A link counts by its text.
    while let Some((before, after)) = rest.split_once("](") {
        text += before;
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text += rest;
    let kept = text
        .trim()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ' '));
    kept.flat_map(char::to_lowercase)
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}
