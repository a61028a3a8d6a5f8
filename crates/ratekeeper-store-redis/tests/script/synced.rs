//! The script of synced counters beside the model that nodes are simulated with: the same answers to the same additions,
//! repeated, late and out of order, while keys are lost.

#[path = "../../../ratekeeper-core/tests/synced/store.rs"]
#[allow(
    dead_code,
    reason = "the simulation also runs it without its protections"
)]
mod model;

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use ratekeeper_core::synced::Addition;
use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_store::CounterKey;
use ratekeeper_store_redis::script::{Call, Item, KeyName, Script, SyncCall, decode_sync};
use ratekeeper_testkit::redis::{Client, Reply, Server};

const KEY: CounterKey = CounterKey {
    subject: 7,
    identity: 11,
};

const WINDOW: u64 = 10_000_000;

/// One event of a history.
#[derive(Clone, Debug)]
enum Event {
    /// A node's additions, as sent before or as they are now.
    Add { node: usize, again: bool },
    /// Hits that a node admits, or gives back, in one of the windows.
    Count {
        node: usize,
        window: usize,
        hits: i64,
    },
    /// The count of a window is evicted, its marks, or both.
    Lose { window: usize, which: u8 },
}

fn event() -> impl Strategy<Value = Event> {
    let node = 0..3_usize;
    let window = 0..3_usize;
    prop_oneof![
        5 => (node.clone(), any::<bool>()).prop_map(|(node, again)| Event::Add { node, again }),
        5 => (node, window.clone(), -2..9_i64)
            .prop_map(|(node, window, hits)| Event::Count { node, window, hits }),
        1 => (window, 0..3_u8).prop_map(|(window, which)| Event::Lose { window, which }),
    ]
}

fn start(window: usize) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000 + window as u64 * WINDOW)
}

#[derive(Default)]
struct Node {
    number: u64,
    totals: [i64; 3],
    sent: Vec<Addition>,
}

impl Node {
    fn additions(&mut self, again: bool) -> &[Addition] {
        if !again || self.sent.is_empty() {
            self.number += 1;
            let (number, kept) = (self.number, Micros::from_secs(60));
            let totals = self.totals.iter().enumerate();
            let sent = totals.map(|(window, total)| Addition {
                start: start(window),
                number,
                total: *total,
                kept,
            });
            self.sent = sent.collect();
        }
        &self.sent
    }
}

fn command(additions: &[Addition], node: &str, script: &Script) -> Vec<Vec<u8>> {
    let mut call = Call::new();
    let sync = SyncCall {
        key: KEY,
        node,
        life: 1,
        additions,
    };
    call.push_sync(&sync, &KeyName::default());
    let keys: Vec<Vec<u8>> = call.keys().map(<[u8]>::to_vec).collect();
    let mut words = vec![b"EVAL".to_vec(), script.text().into()];
    words.push(keys.len().to_string().into());
    words.extend(keys);
    words.push(call.plan().to_vec());
    words
}

fn key(window: usize, is_marks: bool) -> Vec<u8> {
    let mut key = Vec::new();
    match is_marks {
        true => KeyName::default().marks(KEY, start(window), &mut key),
        false => KeyName::default().window(KEY, start(window), &mut key),
    }
    key
}

#[test]
fn the_script_answers_as_the_model_does() {
    let server = Server::start();
    let client = RefCell::new(server.client());
    let script = Script::synced();
    let config = Config {
        cases: 200,
        failure_persistence: None,
        ..Config::default()
    };
    let histories = prop::collection::vec(event(), 1..40);
    let ran = TestRunner::new(config).run(&histories, |history| {
        let client = &mut *client.borrow_mut();
        client.ask(&["FLUSHALL"]);
        compare(&history, client, &script);
        Ok(())
    });
    if let Err(broken) = ran {
        panic!("{broken}");
    }
}

fn compare(history: &[Event], client: &mut Client, script: &Script) {
    let mut nodes: [Node; 3] = Default::default();
    let mut sums = model::Sums::new();
    for event in history {
        match *event {
            Event::Count { node, window, hits } => nodes[node].totals[window] += hits,
            Event::Lose { window, which } => {
                let sum = sums.entry(start(window)).or_default();
                if which != 1 {
                    client.ask(&[b"DEL".to_vec(), key(window, false)]);
                    sum.value = None;
                }
                if which != 0 {
                    client.ask(&[b"DEL".to_vec(), key(window, true)]);
                    sum.marks.clear();
                }
            }
            Event::Add { node, again } => {
                let additions = nodes[node].additions(again).to_vec();
                let command = command(&additions, &node.to_string(), script);
                let Reply::Array(items) = client.ask(&command) else {
                    panic!("the script answers with an array");
                };
                let items = items.iter().map(|item| match item {
                    Reply::Int(number) => Item::Int(*number),
                    other => panic!("{other:?}"),
                });
                let answer = decode_sync(additions.len(), items).expect("an answer");
                let expected = model::add(&mut sums, node as u64, &additions, None);
                assert_eq!(answer.sums, expected, "{event:?} of {history:?}");
            }
        }
    }
    for window in 0..3 {
        for key in [key(window, false), key(window, true)] {
            let left = client.ask(&[b"PTTL".to_vec(), key]);
            assert_ne!(left, Reply::Int(-1), "it expires by itself");
        }
    }
}

/// Neither the count nor the marks are taken for none, nor written over.
#[test]
fn counts_and_marks_of_another_format_are_left_as_they_are() {
    let server = Server::start();
    let mut client = server.client();
    let script = Script::synced();
    for (count, mark) in [
        ("\u{a2}5", "1 5"),
        ("5 1", "1 5"),
        ("", "1 5"),
        ("\u{a2}5", ""),
        ("5", "2:1 5"),
        ("5", ""),
    ] {
        client.ask(&["FLUSHALL"]);
        let (counted, marks) = (key(0, false), key(0, true));
        client.ask(&[b"SET".as_slice(), &counted, count.as_bytes()]);
        if !mark.is_empty() || count == "5" {
            client.ask(&[b"HSET".as_slice(), &marks, b"n.1", mark.as_bytes()]);
        }
        let mut node = Node {
            number: 7,
            totals: [9, 0, 0],
            sent: Vec::new(),
        };
        let additions = node.additions(false)[..1].to_vec();
        let Reply::Array(items) = client.ask(&command(&additions, "n", &script)) else {
            panic!("the script answers with an array");
        };
        assert_eq!(items[2], Reply::Int(-1), "{items:?} to {count:?}, {mark:?}");
        let items = items.iter().map(|item| match item {
            Reply::Int(number) => Item::Int(*number),
            other => panic!("{other:?}"),
        });
        let answer = decode_sync(additions.len(), items);
        assert!(answer.is_err(), "it is no count: {answer:?}");
        let left = client.ask(&[b"GET".as_slice(), &counted]);
        assert_eq!(left, Reply::Bytes(count.into()), "{mark:?}");
        if !mark.is_empty() {
            let left = client.ask(&[b"HGET".as_slice(), &marks, b"n.1"]);
            assert_eq!(left, Reply::Bytes(mark.into()), "{count:?}");
        }
    }
}
