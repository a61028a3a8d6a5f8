//! Places in responses that tell what their requests used.

use std::num::NonZeroU32;

use ratekeeper_rules::{TokenWeights, UsageBody, UsageEstimate, UsageKind, UsageRules};

use crate::support::{errors, loaded};

fn text(usage: &str) -> String {
    format!(
        "domain: llm\nusage: {usage}\ndescriptors:\n\
         - key: user\n  rate_limit: {{ window: 1h, limit: 1000, post_paid: true }}\n"
    )
}

fn rules(usage: &str) -> UsageRules {
    let loaded = loaded(&text(usage));
    let domain = loaded.rules.domain("llm").expect("the domain");
    let usage = domain.usage().expect("it reads the usage");
    (**usage).clone()
}

#[test]
fn tokens_need_no_more_than_a_word() {
    let expected = UsageRules::tokens(TokenWeights::default());
    assert_eq!(rules("tokens"), expected);
    assert_eq!(rules("{ tokens: {} }"), expected);
    assert_eq!(rules("{ tokens: }"), expected);
    assert!(expected.reads_bodies());
    let plain = loaded(
        "domain: llm\ndescriptors: [ { key: user, rate_limit: { window: 1h, limit: 10 } } ]\n",
    );
    assert_eq!(plain.rules.domain("llm").and_then(|it| it.usage()), None);
}

#[test]
fn weights_are_exact_decimals() {
    let weighted = rules("{ tokens: { input: 0.25, output: 4 }, estimate: 500, reserve: 300 }");
    let expected = TokenWeights {
        input: 250_000,
        cached_input: 250_000,
        output: 4_000_000,
    };
    assert_eq!(weighted.weights, expected);
    assert_eq!(weighted.estimate, UsageEstimate::Hits(500));
    assert_eq!(weighted.reserve, 300);
    let cached = rules("{ tokens: { input: 1, cached_input: 0.1 } }");
    let parts = cached.sums.iter().filter(|sum| sum.is_part);
    // What is within the input is counted there already.
    assert_eq!(parts.map(|sum| sum.weight).collect::<Vec<_>>(), [-900_000]);
}

#[test]
fn places_are_pointers_or_a_header() {
    let places = rules(
        "{ json: { /usage/in: 1, /usage/cached: -0.5 }, sse: /done/usage, estimate: bytes/3 }",
    );
    let found: Vec<_> = places
        .fields
        .iter()
        .map(|field| {
            let keys: Vec<_> = field.pointer.tokens().iter().map(|it| &*it.key).collect();
            let sum = places.sums[usize::from(field.sum)];
            (keys.join("."), field.body, sum.kind, sum.weight)
        })
        .collect();
    let (whole, events, other) = (UsageBody::Whole, UsageBody::Events, UsageKind::Other);
    assert_eq!(
        found,
        [
            ("usage.in".to_owned(), whole, other, 1_000_000),
            ("usage.cached".to_owned(), whole, other, -500_000),
            ("done.usage".to_owned(), events, other, 1_000_000),
        ]
    );
    let three = NonZeroU32::new(3).expect("it is not zero");
    assert_eq!(places.estimate, UsageEstimate::Bytes(three));
    let header = rules("{ header: X-Tokens }");
    assert_eq!(header.header.as_deref(), Some("x-tokens"));
    assert!(!header.reads_bodies());
    assert_eq!(rules("{ json: /a }").fields[0].body, UsageBody::Any);
    let escaped = rules("{ json: /a~1b/~0/3/* }");
    let tokens = escaped.fields[0].pointer.tokens();
    assert_eq!((&*tokens[0].key, &*tokens[1].key), ("a/b", "~"));
    assert_eq!((tokens[2].index, tokens[3].is_any), (Some(3), true));
}

#[test]
fn mistakes_are_told_with_what_to_write() {
    for (usage, message) in [
        ("~", "`usage` is empty"),
        ("token", "`usage` is `tokens`, or a mapping"),
        ("{}", "does not say where"),
        ("{ estimate: 3 }", "does not say where"),
        ("{ tokens: {}, json: /a }", "there can be no others"),
        ("{ json: usage }", "a pointer begins with `/`"),
        ("{ json: / }", "1 to 64 bytes"),
        ("{ json: /a~2 }", "`~` is written `~0`"),
        ("{ json: /1/2/3/4/5/6/7/8/9 }", "at most 8 parts"),
        ("{ json: { /a: x } }", "a number from -1000000"),
        ("{ json: { /a: 1e3 } }", "a number from -1000000"),
        ("{ json: { /a: 0.1234567 } }", "a number from -1000000"),
        ("{ json: { /a: 1000001 } }", "a number from -1000000"),
        ("{ json: [] }", "`json` must be text"),
        ("{ header: 'x tokens' }", "no name of a header"),
        ("{ tokens: { input: -1 } }", "`input` is a number from 0"),
        ("{ tokens: { inputs: 1 } }", "unknown key 'inputs'"),
        ("{ json: /a, estimate: bytes }", "`estimate` is `bytes/`"),
        ("{ json: /a, estimate: bytes/0 }", "`estimate` is `bytes/`"),
        ("{ json: /a, estimate: -1 }", "`estimate` is `bytes/`"),
        ("{ json: /a, reserve: -1 }", "`reserve` is a whole number"),
        ("{ jsn: /a }", "unknown key 'jsn'"),
    ] {
        let errors = errors(&text(usage));
        let found = errors.iter().any(|error| error.contains(message));
        assert!(found, "{usage}: {errors:?}");
    }
    let many: Vec<_> = (0..17).map(|number| format!("/a{number}: 1")).collect();
    let errors = errors(&text(&format!("{{ json: {{ {} }} }}", many.join(", "))));
    assert!(errors[0].contains("more than 16 places"), "{errors:?}");
}

#[test]
fn usage_without_a_budget_is_warned_of() {
    let text = "domain: llm\nusage: tokens\ndescriptors: [ { key: user, rate_limit: { window: 1h, limit: 10 } } ]\n";
    let found = loaded(text).warnings;
    let found = found
        .iter()
        .find(|it| it.message.contains("paid afterwards"));
    assert_eq!(found.map(|it| it.place.line), Some(2));
}
