//! Budgets over traces of calls whose costs are known only afterwards.

use std::path::Path;

use ratekeeper_replay::{CostOptions, CostReplay, CostReport, Log, ReplayError};
use ratekeeper_rules::{Options, RuleSet, Source};

/// Columns as in the traces that Azure publishes.
const HEAD: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n";

/// A budget of 100 tokens of output for everybody together, in a window that no test leaves.
const OUTPUT: &str = "domain: llm
descriptors:
- { key: tokens, value: output, rate_limit: { window: 10000d, limit: 100, algorithm: fixed_window, post_paid: true } }
";

fn rules(text: &str) -> RuleSet {
    let source = Source {
        name: "rules.yaml".into(),
        text: text.into(),
    };
    let loaded = ratekeeper_rules::load(&[source], &Options::default());
    loaded.expect("good rules").rules
}

fn options(change: impl FnOnce(&mut CostOptions)) -> CostOptions {
    let mut options = CostOptions::default();
    change(&mut options);
    options
}

fn read(options: CostOptions, rules: &str, trace: &str) -> Result<CostReport, ReplayError> {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("calls.csv");
    std::fs::write(&path, trace).expect("files can be written");
    let mut replay = CostReplay::new(options, &self::rules(rules))?;
    replay.read(&Log::File(path), |_| {})?;
    Ok(replay.report())
}

fn replayed(options: CostOptions, rules: &str, calls: &str) -> CostReport {
    read(options, rules, &format!("{HEAD}{calls}")).expect("it can be replayed")
}

/// The calls that each way let in.
fn let_in(report: &CostReport) -> Vec<u64> {
    report.ways.iter().map(|way| way.calls.allowed).collect()
}

/// The most that each way used of the first budget.
fn most(report: &CostReport) -> Vec<Option<u64>> {
    let ways = report.ways.iter();
    ways.map(|way| way.rules[0].most_in_a_window).collect()
}

#[test]
fn calls_in_flight_exceed_a_budget_by_what_was_not_reserved() {
    // They come within a second, and take two seconds each.
    let calls: String = (1..=6)
        .map(|tenth| format!("2023-11-16 18:15:46.{tenth},7,100\n"))
        .collect();
    let report = replayed(options(|it| it.reserve = 60), OUTPUT, &calls);
    // All look before the first has paid; two reserve while anything is left; one fits in advance.
    assert_eq!(let_in(&report), [6, 2, 1]);
    assert_eq!(most(&report), [Some(600), Some(200), Some(100)]);
    let prompt = report.ways[1].tokens.prompt;
    assert_eq!((prompt.allowed, prompt.denied), (14, 28));
    let output = report.ways[1].tokens.output;
    assert_eq!((output.allowed, output.denied), (200, 400));
}

/// Scripts read no tables.
#[test]
fn the_json_has_the_time_the_notes_and_the_order_that_the_tables_tell() {
    let rules = format!("{OUTPUT}- {{ key: user, rate_limit: {{ window: 1h, limit: 5 }} }}\n");
    let calls = "2023-11-16 18:15:46,7,10\n2023-11-16 18:15:50,7,10\n2023-11-16 18:15:49,7,10\n";
    let report = replayed(options(|_| {}), &rules, calls);
    let json = serde_json::to_value(&report).expect("it is plain data");
    assert_eq!(json["domain"], "llm");
    assert_eq!(json["span"]["first"], "2023-11-16T18:15:46Z");
    assert_eq!(json["span"]["last"], "2023-11-16T18:15:50Z");
    assert_eq!(json["late"], 1);
    let notes = json["notes"].as_array().expect("a list");
    assert_eq!(notes.len(), 1, "{notes:?}");
    let text = report.to_string();
    for note in notes {
        let note = note.as_str().expect("a sentence");
        assert!(text.contains(note), "{note}: {text}");
    }
    let empty = replayed(options(|_| {}), OUTPUT, "");
    let json = serde_json::to_value(&empty).expect("it is plain data");
    assert!(json["span"].is_null(), "{json}");
}

#[test]
fn what_was_reserved_and_not_used_is_given_back_and_what_was_asked_in_advance_is_not() {
    // Each ends before the next one comes.
    let calls: String = (0..20)
        .map(|minute| format!("2023-11-16T18:{minute:02}:00Z,7,10\n"))
        .collect();
    for algorithm in [
        "fixed_window",
        "sliding_window",
        "sliding_log",
        "token_bucket, max_debt: 100",
    ] {
        let rules = OUTPUT.replace("fixed_window", algorithm);
        let report = replayed(options(|it| it.reserve = 60), &rules, &calls);
        assert_eq!(let_in(&report), [10, 10, 1], "{algorithm}");
        let minutes = &report.ways[0].minutes;
        assert_eq!(minutes.len(), 10, "{algorithm}");
        assert_eq!(
            (&*minutes[9].minute, minutes[9].output_tokens),
            ("2023-11-16T18:09:00Z", 10)
        );
    }
    let report = replayed(options(|it| it.reserve = 60), OUTPUT, &calls);
    assert_eq!(most(&report), [Some(100), Some(100), Some(10)]);
}

#[test]
fn more_than_was_reserved_is_charged_in_the_end() {
    let calls = "2023-11-16T18:00:00Z,7,90\n2023-11-16T18:01:00Z,7,90\n2023-11-16T18:02:00Z,7,90\n";
    let report = replayed(options(|it| it.reserve = 20), OUTPUT, calls);
    assert_eq!(let_in(&report), [2, 2, 3]);
    // What was asked for in advance is not corrected.
    assert_eq!(most(&report), [Some(180), Some(180), Some(270)]);
}

#[test]
fn a_window_that_is_over_gets_nothing_back() {
    let rules = "domain: llm
descriptors:
- { key: tokens, value: output, rate_limit: { window: 10s, limit: 100, algorithm: fixed_window, post_paid: true } }
";
    // The first ends in the second window, whose only reservation is the second's: what it gives back is of the first.
    let calls =
        "2023-11-16T18:00:09.9Z,7,10\n2023-11-16T18:00:10.05Z,7,90\n2023-11-16T18:00:11Z,7,1\n";
    let report = replayed(options(|it| it.reserve = 100), rules, calls);
    assert_eq!(let_in(&report), [3, 2, 2]);
}

#[test]
fn prompts_and_outputs_are_paid_apart_or_by_weight() {
    let budgets = "domain: llm
descriptors:
- { key: model, rate_limit: { name: all, window: 10000d, limit: 500, algorithm: fixed_window, post_paid: true } }
- key: tokens
  value: prompt
  descriptors:
  - { key: model, rate_limit: { window: 10000d, limit: 70, algorithm: fixed_window, post_paid: true } }
- key: tokens
  value: output
  descriptors:
  - { key: model, rate_limit: { window: 10000d, limit: 70, algorithm: fixed_window, post_paid: true } }
- { key: requests, rate_limit: { window: 1s, limit: 1 } }
";
    let head = "time,prompt_tokens,completion_tokens,model\n";
    let calls = "1700000000,50,10,a\n1700000100,50,10,\"b,c\"\n1700000200,50,10,a\n1700000300,50,10,a\n1700000400,50,10,\n";
    let by_model = options(|it| {
        it.descriptors = vec![vec!["model".to_owned()]];
        it.weights.output = 4;
        it.reserve = 10;
    });
    let report = read(by_model, budgets, &format!("{head}{calls}")).expect("it can be replayed");
    let [all, prompt, output] = &report.ways[0].rules[..] else {
        panic!("{report:?}")
    };
    // 50 + 4 x 10 each, of three calls that name the model `a`, the third of which finds its prompts paid up.
    assert_eq!(all.most_in_a_window, Some(180));
    assert_eq!(prompt.most_in_a_window, Some(100));
    assert_eq!(output.most_in_a_window, Some(20));
    let denied = [all, prompt, output].map(|budget| budget.decisions.denied);
    assert_eq!(denied, [0, 1, 0]);
    assert_eq!(prompt.decisions.top_denied[0].key, "tokens=prompt,model=a");
    let table = report.to_string();
    for said in ["llm.requests is no budget", "model=b\\,c"] {
        assert_eq!(table.contains(said), said.starts_with("llm"), "{table}");
    }
    // In advance, the second prompt does not fit any more.
    assert_eq!(report.ways[2].rules[1].decisions.denied, 2);
}

#[test]
fn calls_are_dealt_to_made_up_users_by_their_rank() {
    let rules = "domain: llm
descriptors:
- { key: user, rate_limit: { window: 10000d, limit: 1000000, algorithm: fixed_window, post_paid: true } }
";
    let calls = "1700000000,0,1000\n".repeat(6_000);
    let users = options(|it| {
        it.users = 3;
        it.top_denied = 3;
    });
    let report = replayed(users.clone(), rules, &calls);
    assert_eq!(report.ways[0].calls.denied, 0, "all look at once");
    // Shares of 6, 3 and 2 of 11; each has a budget of 1,000 calls, twice as many by what they reserve.
    let denied = &report.ways[1].rules[0].decisions.top_denied;
    let denied: Vec<(&str, u64)> = denied.iter().map(|top| (&*top.key, top.denied)).collect();
    let [("user=user-1", first)] = denied[..] else {
        panic!("{denied:?}")
    };
    assert!((1_200..1_340).contains(&first), "{first} of 3,273 - 2,000");
    assert_eq!(report, replayed(users, rules, &calls), "nothing is random");
}

#[test]
fn a_trace_that_cannot_be_read_is_said() {
    let refused = |trace: &str, rules: &str| {
        let descriptors = options(|it| it.descriptors = vec![vec!["model".to_owned()]]);
        read(descriptors, rules, trace)
            .expect_err("it is refused")
            .to_string()
    };
    let said = refused(&format!("{HEAD}1,2,3\n"), OUTPUT);
    assert!(
        said.contains("no column model; it has: TIMESTAMP, ContextTokens"),
        "{said}"
    );
    let said = refused("2023-11-16 18:15:46,1,2\n", OUTPUT);
    assert!(said.contains("no column TIMESTAMP"), "{said}");
    let no_budget =
        "domain: d\ndescriptors: [{ key: tokens, rate_limit: { window: 1s, limit: 1 } }]";
    assert!(refused(HEAD, no_budget).contains("post_paid: true"));
}

#[test]
fn lines_that_are_no_calls_are_told_and_late_ones_counted() {
    let calls = concat!(
        "1700000100,1,1\n",
        "\n",
        "1700000050,1,1\n",
        "yesterday,1,1\n",
        ",1,1\n",
        "1700000100,-1,1\n",
        "1700000100,1,9007199254740993\n",
        "1700000100,1\n",
        "1700000100,1,1e9\n",
        "\"1700000100,1,1\n",
    );
    let report = replayed(CostOptions::default(), OUTPUT, calls);
    let lines = report.lines;
    assert_eq!((lines.read, lines.parsed, lines.malformed), (9, 2, 7));
    let table = report.to_string();
    for said in [
        "line 5: an unreadable time: yesterday",
        "line 6: no time",
        "line 7: no number of tokens",
        "and 2 more",
        "WARNING: Lines out of order: 1 (50.00 %)",
    ] {
        assert!(table.contains(said), "{said}: {table}");
    }
}

#[test]
fn the_largest_costs_are_charged_without_overflowing() {
    let most = (1_u64 << 53) - 1;
    let calls = format!("1700000000,{most},{most}\n").repeat(3);
    let rules = "domain: llm
descriptors:
- { key: tokens, value: all, rate_limit: { window: 1s, limit: 100, algorithm: gcra, post_paid: true } }
";
    let heavy = options(|it| {
        it.weights.output = u64::MAX;
        it.reserve = u64::MAX;
        it.tokens_per_second = 0;
    });
    let report = replayed(heavy, rules, &calls);
    assert_eq!(let_in(&report), [3, 1, 0]);
}

/// The folder of this repository's example logs.
fn logs() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/logs")
}

#[test]
fn the_manual_shows_the_tables_of_its_command() {
    let sources = ratekeeper_rules::read(&logs().join("azure-llm.yaml"), &Default::default());
    let loaded = ratekeeper_rules::load(&sources.expect("it is there"), &Options::default());
    let users = options(|it| {
        it.users = 50;
        it.top_denied = 5;
    });
    let mut replay = CostReplay::new(users, &loaded.expect("good rules").rules).expect("budgets");
    let log = Log::File(logs().join("azure-llm-2023-11-16.csv.gz"));
    replay.read(&log, |_| {}).expect("it can be read");
    let report = replay.report().to_string();
    let manual = std::fs::read_to_string(logs().join("../../docs/budgets.md"));
    assert!(
        manual
            .expect("it is there")
            .contains(&format!("```text\n{report}```")),
        "{report}"
    );
}

#[test]
fn a_trace_of_which_most_comes_late_is_no_sound_report() {
    let call = |minute: u64| format!("2023-11-16T18:{minute:02}:00Z,7,10\n");
    let report = |minutes: &[u64]| {
        let calls: String = minutes.iter().map(|minute| call(*minute)).collect();
        replayed(options(|_| {}), OUTPUT, &calls)
    };
    assert!(!report(&[0, 3, 1, 4]).is_unsound());
    assert!(report(&[9, 3, 1, 4]).is_unsound());
}
