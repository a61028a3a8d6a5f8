//! Values of other formats: cut, unknown, and of a later version of Ratekeeper, which counts beside this one.

use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::formats::FIXED_WINDOW;
use ratekeeper_core::lease::{LeaseReport, Terms};
use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};
use ratekeeper_store::{CounterKey, Post, Request, Step, StepOutcome};
use ratekeeper_store_redis::script::{
    AnswerError, Call, Clock, Group, Item, KeyName, LeaseCall, LeaseOutcome, Script, decode,
    decode_lease_calls,
};
use ratekeeper_testkit::redis::{Client, Reply, Server, encode};

use crate::timed_store::{items, names};

const START: Timestamp = Timestamp::from_secs(1_789_000_123);

/// Later than the start.
const NOW: Timestamp = Timestamp::from_secs(1_789_000_423);

/// Each form of each algorithm's state: larger limits have other forms of groups, and wide counts.
fn limits() -> Vec<Limit> {
    let hour = Micros::from_secs(3_600);
    let plain = Algorithm::ALL.into_iter().flat_map(|algorithm| {
        let quotas: &[u64] = match algorithm {
            Algorithm::SlidingWindow => &[8, 11, 16, 23, 1_000, 5_000_000],
            Algorithm::Concurrency | Algorithm::SlidingLog => &[100],
            _ => &[100, 1_000_000],
        };
        quotas
            .iter()
            .map(move |quota| LimitSpec::new(algorithm, *quota, hour))
    });
    let sub_windows = [100, 1_000, 100_000].map(|quota| LimitSpec {
        sub_windows: Some(6),
        ..LimitSpec::new(Algorithm::SlidingWindow, quota, hour)
    });
    let fast = LimitSpec::new(Algorithm::TokenBucket, 7_000_000, Micros::from_secs(3));
    let specs = plain.chain(sub_windows).chain([fast]);
    specs
        .map(|spec| Limit::try_new(spec).expect("a valid limit"))
        .collect()
}

/// A node with some version of the script.
struct Node {
    client: Client,
    sha1: String,
    names: KeyName,
}

impl Node {
    fn new(server: &Server, names: &KeyName, text: &str) -> Self {
        let mut client = server.client();
        let loaded = client.ask(&["SCRIPT", "LOAD", text]);
        assert!(!loaded.is_error(), "{loaded:?}");
        Self {
            client,
            sha1: loaded.text(),
            names: names.clone(),
        }
    }

    fn send(&mut self, args: &[&[u8]]) -> Reply {
        let mut bytes = Vec::new();
        encode(args, &mut bytes);
        self.client.send(&bytes);
        self.client.read()
    }

    fn call(&mut self, call: &Call, now: Timestamp) -> Reply {
        let (count, now) = (call.keys().len().to_string(), now.as_micros().to_string());
        let sha1 = self.sha1.clone();
        let mut args: Vec<&[u8]> = vec![b"EVALSHA", sha1.as_bytes(), count.as_bytes()];
        args.extend(call.keys());
        args.extend([call.plan(), now.as_bytes()]);
        self.send(&args)
    }

    fn group(&mut self, group: &Group, now: Timestamp) -> Reply {
        let mut call = Call::new();
        call.push(group, &self.names);
        self.call(&call, now)
    }

    /// Takes hits: true if they were admitted.
    fn take(&mut self, step: Step, now: Timestamp) -> Result<bool, AnswerError> {
        let group = Group::new(&Request::new(&[step], Mode::default(), now));
        let reply = self.group(&group, now);
        let mut allowed = false;
        decode(&[group], items(&reply), |_, verdicts| {
            allowed = matches!(verdicts.outcomes[0], StepOutcome::Counted(it) if it.fits());
        })?;
        Ok(allowed)
    }

    fn key(&self, step: Step) -> Vec<u8> {
        let mut key = Vec::new();
        self.names.counter(step.key, &mut key);
        key
    }

    fn value(&mut self, step: Step) -> Option<Vec<u8>> {
        let key = self.key(step);
        match self.send(&[b"GET", &key]) {
            Reply::Bytes(value) => Some(value),
            Reply::Null => None,
            other => panic!("{other:?}"),
        }
    }
}

fn step(limit: &Limit, identity: u64, hits: i64) -> Step {
    let key = CounterKey {
        subject: 1,
        identity,
    };
    Step {
        hits,
        ..Step::new(key, *limit)
    }
}

/// The same value as a later version, or an accident, may have it.
fn variants(value: &[u8]) -> Vec<Vec<u8>> {
    let cut = (1..value.len()).map(|end| value[..end].to_vec());
    let lengthened = [vec![0], vec![255], b" ".to_vec()].map(|end| [value, &end].concat());
    cut.chain(lengthened).collect()
}

/// Values that begin as those of a later version do, by the first byte.
fn later(value: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let marked = (128..=255_u8).flat_map(|mark| {
        let before = [&[mark][..], value].concat();
        let instead = [&[mark][..], &value[1..]].concat();
        [(mark, before), (mark, instead)]
    });
    marked.collect()
}

/// Returns true for the first bytes whose values are asked for in every way: the ends of the range, a middle, and the next
/// format. Of the others one way is enough, since no way knows marks from each other.
fn is_asked_in_every_way(mark: u8) -> bool {
    [128, 129, 191, 255, FIXED_WINDOW.next().first_byte()].contains(&mark)
}

static NEXT_POST: AtomicU64 = AtomicU64::new(0);

/// The answer to a request of these steps.
fn ask(node: &mut Node, steps: &[Step]) -> Result<(), AnswerError> {
    let group = Group::new(&Request::new(steps, Mode::default(), NOW));
    let reply = node.group(&group, NOW);
    assert!(!reply.is_error(), "{reply:?}");
    decode(&[group], items(&reply), |_, _| {})
}

/// Every way in which a value is asked for: alone, with another counter, by a post and by a node that leases it.
fn ask_in_every_way(node: &mut Node, limit: &Limit) -> Vec<Result<(), AnswerError>> {
    let (step, other) = (step(limit, 1, 1), step(limit, 2, 1));
    let requests = [&[step][..], &[step, other], &[other, step]];
    let mut told: Vec<_> = requests.map(|steps| ask(node, steps)).into();
    if limit.algorithm() != Algorithm::Concurrency {
        // Relaxed: only that each is another one matters.
        let post = Post {
            id: NEXT_POST.fetch_add(1, Ordering::Relaxed).into(),
            step,
            age: Micros::ZERO,
            named_by: None,
        };
        let reply = node.group(&Group::of_post(&post), NOW);
        assert!(!reply.is_error(), "{reply:?}");
        told.push(match items(&reply)[..] {
            [_, Item::Int(-1)] => Err(AnswerError::Corrupt),
            _ => Ok(()),
        });
    }
    if let Ok(terms) = Terms::try_new(limit, Micros::from_millis(100)) {
        let report = LeaseReport {
            node: 7,
            number: 1,
            since: 1,
            spent: 0,
            is_final: false,
            target: 50,
        };
        let lease_call = LeaseCall {
            key: step.key,
            terms,
            calendar: None,
            lent: None,
            counted: None,
            report,
        };
        let mut call = Call::new();
        call.push_lease_call(&lease_call, &node.names.clone());
        let reply = node.call(&call, NOW);
        assert!(!reply.is_error(), "{reply:?}");
        told.push(match decode_lease_calls(&[lease_call], items(&reply)) {
            Ok(outcomes) if outcomes == [LeaseOutcome::Corrupt] => Err(AnswerError::Corrupt),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        });
    }
    told
}

#[test]
fn a_value_of_another_format_is_neither_decided_by_nor_written_over() {
    let server = Server::start();
    let script = Script::new(Clock::FromCaller);
    for limit in limits() {
        let mut node = Node::new(&server, &names(), script.text());
        let (counted, key) = (step(&limit, 1, 1), node.key(step(&limit, 1, 1)));
        for (turn, hits) in (0..).zip([1, 3, 1, 40, 300, 70_000]) {
            let now = START.after(Micros::from_secs(turn * 50));
            let taken = node.take(step(&limit, 1, hits), now);
            assert!(taken.is_ok(), "{taken:?}");
        }
        let value = match limit.algorithm() {
            // The one value that is no string: a later version has another type.
            Algorithm::Concurrency => Vec::from("a later version"),
            _ => node.value(counted).expect("it is counted"),
        };
        let marked = later(&value).into_iter().map(|(mark, it)| (it, Some(mark)));
        let cut = variants(&value).into_iter().map(|it| (it, None));
        for (variant, mark) in marked.chain(cut) {
            let is_later = mark.is_some();
            assert_eq!(node.send(&[b"SET", &key, &variant]).text(), "OK");
            let answers = match mark.is_none_or(is_asked_in_every_way) {
                true => ask_in_every_way(&mut node, &limit),
                false => vec![ask(&mut node, &[counted])],
            };
            let is_refused = answers[0] == Err(AnswerError::Corrupt);
            assert!(
                is_refused || !is_later,
                "{answers:?} to {variant:?} of {limit:?}"
            );
            if is_refused {
                let all = answers.iter().all(|it| *it == Err(AnswerError::Corrupt));
                assert!(all, "{answers:?} to {variant:?} of {limit:?}");
                assert_eq!(node.value(counted), Some(variant.clone()), "it is left");
                assert_eq!(node.send(&[b"PTTL", &key]), Reply::Int(-1), "and lasts");
                let beside = node.key(step(&limit, 2, 1));
                assert_eq!(
                    node.send(&[b"EXISTS", &beside]),
                    Reply::Int(0),
                    "nor charged"
                );
            } else {
                // A shorter state that is one: read alike by script and core.
                let all = answers.iter().all(Result::is_ok);
                assert!(all, "{answers:?} to {variant:?} of {limit:?}");
                node.send(&[b"FLUSHALL"]);
            }
        }
    }
}

/// The script of a later build, in which windows have the next format: what they have now behind its first byte.
fn later_build(writes_new: bool) -> String {
    let mark = format!("\\{}", FIXED_WINDOW.next().first_byte());
    let mut text = Script::new(Clock::FromCaller).text().to_owned();
    let mut put = |old: &str, new: String| {
        assert!(text.contains(old), "{old}");
        text = text.replace(old, &new);
    };
    put(
        "if find(raw, '%D') and not find(raw, '^%d+ %d+$') then",
        format!("if find(raw, '[^%d{mark}]') and not find(raw, '^{mark}?%d+ %d+$') then"),
    );
    let read = "local word, kept = tonumber(raw), nil";
    put(
        read,
        format!("local raw = string.gsub(raw, '^{mark}', '')\n{read}"),
    );
    // Its nodes are told the state as these here know it.
    let told = "out[known] = raw == -1 and raw or told";
    put(
        told,
        format!("{told} and (string.gsub(told, '^{mark}', ''))"),
    );
    if writes_new {
        let written = "value = format('%.0f', s2 / a3 * a4 + s1)";
        put(written, written.replace("= ", &format!("= '{mark}' .. ")));
    }
    text
}

/// Takes hits by turns until none is left, and returns how many passed.
fn flood(nodes: &mut [&mut Node], counted: Step, most: i64) -> i64 {
    let (mut admitted, mut hits) = (0, 0);
    loop {
        for node in &mut *nodes {
            hits = (hits * 5 + 3) % 7;
            let step = Step {
                hits: hits + 1,
                ..counted
            };
            if admitted + step.hits > most {
                return admitted;
            }
            if node.take(step, NOW).expect("it reads both") {
                admitted += step.hits;
            } else if node.take(Step { hits: 1, ..counted }, NOW) == Ok(false) {
                return admitted;
            } else {
                admitted += 1;
            }
        }
    }
}

/// A format is changed without a pause: first every node reads both and writes the old one, then the new one. Whoever
/// was left out meets errors, which its failure mode answers, and takes nothing away from the counter.
#[test]
fn a_build_with_a_later_format_counts_beside_this_one() {
    let (server, names) = (Server::start(), names());
    let this = Script::new(Clock::FromCaller);
    let mut old = Node::new(&server, &names, this.text());
    let mut reads_both = Node::new(&server, &names, &later_build(false));
    let mut writes_new = Node::new(&server, &names, &later_build(true));
    let spec = LimitSpec::new(Algorithm::FixedWindow, 1_000, Micros::from_secs(3_600));
    let limit = Limit::try_new(spec).expect("a valid limit");
    let first_byte = FIXED_WINDOW.next().first_byte();

    // Each pair of neighbours in time shares one limit to the hit.
    let counted = step(&limit, 1, 1);
    assert_eq!(
        flood(&mut [&mut old, &mut reads_both], counted, i64::MAX),
        1_000
    );
    let counted = step(&limit, 2, 1);
    assert_eq!(
        flood(&mut [&mut reads_both, &mut writes_new], counted, i64::MAX),
        1_000
    );

    // All in order on one counter, which is never emptied.
    let counted = step(&limit, 3, 1);
    let before = flood(&mut [&mut old, &mut reads_both], counted, 400);
    let value = old.value(counted).expect("it is counted");
    assert!(
        value.iter().all(u8::is_ascii_digit),
        "the old format: {value:?}"
    );
    let changed = flood(&mut [&mut reads_both, &mut writes_new], counted, 300);
    assert_eq!(writes_new.take(Step { hits: 1, ..counted }, NOW), Ok(true));
    let value = old.value(counted).expect("it is counted");
    assert_eq!(value[0], first_byte, "the new format: {value:?}");
    for hits in [1, 10, 1_001] {
        let refused = old.take(Step { hits, ..counted }, NOW);
        assert_eq!(
            refused,
            Err(AnswerError::Corrupt),
            "an error, and no answer"
        );
        assert_eq!(
            old.value(counted).as_ref(),
            Some(&value),
            "nor is it written over"
        );
    }
    let after = flood(&mut [&mut writes_new, &mut reads_both], counted, i64::MAX);
    assert_eq!(before + changed + 1 + after, 1_000);
}
