//! Rules files: any text is loaded or refused, in both profiles; what is loaded can be matched.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ratekeeper_rules::{Entry, Options, Profile, Source, load};

/// The entries matched against every set that loads.
const ENTRIES: [Entry<'static>; 3] = [
    Entry {
        key: "a",
        value: "b",
    },
    Entry {
        key: "key",
        value: "value",
    },
    Entry {
        key: "",
        value: "*",
    },
];

fuzz_target!(|text: &str| {
    for profile in [Profile::Ratekeeper, Profile::Envoy] {
        let mut options = Options::default();
        options.profile = profile;
        options.merge_domains = profile == Profile::Envoy;
        // Two files, split at a page break, so that checks across files are covered too.
        let sources: Vec<Source> = text
            .split('\u{c}')
            .take(2)
            .map(|text| Source {
                name: "fuzz.yaml".to_owned(),
                text: text.to_owned(),
            })
            .collect();
        match load(&sources, &options) {
            Ok(loaded) => {
                for domain in loaded.rules.domains() {
                    let walk = domain.walk(&ENTRIES);
                    for visit in walk.iter() {
                        for rule in visit.node.rules() {
                            assert!(!loaded.rules.rule(*rule).id.is_empty());
                        }
                    }
                }
            }
            Err(problems) => {
                assert!(!problems.errors().is_empty(), "refused without a reason");
                assert!(!problems.to_string().is_empty());
            }
        }
    }
});
