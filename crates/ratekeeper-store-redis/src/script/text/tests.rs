use super::{ALGORITHMS, Clock, DECIDE, ESCROW, GET, Script, branches};
use crate::script::algorithm::ScriptAlgorithm;

const CLOCKS: [Clock; 2] = [Clock::Server, Clock::FromCaller];

#[test]
fn every_place_of_the_script_is_filled() {
    for clock in CLOCKS {
        let script = Script::new(clock);
        assert!(!script.text().contains("--"), "{}", script.text());
        assert_eq!(script.sha1().len(), 40);
    }
}

#[test]
fn lua_names_algorithms_and_rust_numbers_them() {
    let clocks = CLOCKS.map(Clock::text);
    for file in ALGORITHMS
        .into_iter()
        .chain([DECIDE, ESCROW, GET])
        .chain(clocks)
    {
        let number = compared(file).into_iter().find(|word| !is_name(word));
        assert_eq!(number, None, "in {file}");
    }
    for clock in CLOCKS {
        let script = Script::new(clock);
        let unknown = compared(script.text())
            .into_iter()
            .find(|word| word.parse::<u8>().is_err());
        assert_eq!(unknown, None, "{clock:?}");
    }
}

#[test]
fn every_algorithm_is_read_and_charged() {
    for place in ["read", "charge"] {
        let mut text = String::new();
        branches(place, &mut text);
        // Those that regions hold for a time are read as others, by the parameters of a share.
        let own = ScriptAlgorithm::ALL.iter().filter(|it| !it.is_timed());
        for algorithm in own {
            let number = algorithm.code().to_string();
            assert!(
                compared(&text).contains(&number.as_str()),
                "{place} of {algorithm:?}"
            );
        }
    }
}

/// Returns the words that a step's algorithm is compared with.
fn compared<'l>(lua: &'l str) -> Vec<&'l str> {
    let codes = ["code", "(code", "((code", "codes[step]"];
    let operators = ["==", "~=", "<=", ">=", "<", ">"];
    let words: Vec<&str> = lua.split_whitespace().collect();
    let compared = |window: &[&'l str]| match window {
        [code, operator, word] if codes.contains(code) && operators.contains(operator) => {
            Some(word.trim_end_matches(')'))
        }
        _ => None,
    };
    words.windows(3).filter_map(compared).collect()
}

fn is_name(word: &str) -> bool {
    let name = |algorithm: &ScriptAlgorithm| algorithm.name() == word;
    ScriptAlgorithm::ALL.iter().any(name)
}
