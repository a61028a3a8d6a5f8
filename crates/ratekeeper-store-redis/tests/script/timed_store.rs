//! A store that is told the time: one connection, one call for each request.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_store::{Answer, Never, Request, Step, Store, Verdicts};
use ratekeeper_store_redis::script::{Call, Clock, Group, Item, KeyName, Script, decode};
use ratekeeper_testkit::conformance::lives::Life;
use ratekeeper_testkit::redis::{Client, Reply, Server, encode};

/// The elements of a server's answer, in the form that the decoder reads.
pub(crate) fn items(reply: &Reply) -> Vec<Item<'_>> {
    let Reply::Array(items) = reply else {
        panic!("{reply:?} is not what a script returns");
    };
    let item = |item| match item {
        &Reply::Null => Item::Null,
        &Reply::Int(number) => Item::Int(number),
        Reply::Bytes(bytes) => Item::Bytes(bytes),
        other => panic!("{other:?} in an answer"),
    };
    items.iter().map(item).collect()
}

/// Appends the call to a pipeline.
pub(crate) fn push(script: &Script, call: &Call, now: Timestamp, pipeline: &mut Vec<u8>) {
    let (count, now) = (call.keys().len().to_string(), now.as_micros().to_string());
    let mut args: Vec<&[u8]> = vec![b"EVALSHA", script.sha1().as_bytes(), count.as_bytes()];
    args.extend(call.keys());
    args.extend([call.plan(), now.as_bytes()]);
    encode(&args, pipeline);
}

/// A script that is told the time, loaded.
pub(crate) fn load(client: &mut Client) -> Script {
    let script = Script::new(Clock::FromCaller);
    let loaded = client.ask(&["SCRIPT", "LOAD", script.text()]);
    assert_eq!(loaded.text(), script.sha1(), "{loaded:?}");
    script
}

/// The answers to `groups`, in order.
pub(crate) fn answers(groups: &[Group], reply: &Reply) -> Vec<Verdicts> {
    let mut answers = Vec::new();
    let decoded = decode(groups, items(reply), |_, verdicts| answers.push(verdicts));
    assert_eq!(decoded, Ok(()), "{groups:?}\n{reply:?}");
    answers
}

/// A name for the keys of one store.
pub(crate) fn names() -> KeyName {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Relaxed: only that each is another one matters.
    KeyName::new(&format!("t{}:", NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// A store with keys of its own.
pub(crate) struct TimedStore {
    client: Mutex<(Client, Timestamp)>,
    script: Script,
    names: KeyName,
}

impl TimedStore {
    pub(crate) fn new(server: &Server) -> Self {
        let mut client = server.client();
        let script = load(&mut client);
        Self {
            client: Mutex::new((client, Timestamp::EPOCH)),
            script,
            names: names(),
        }
    }

    /// The lives of its counters.
    pub(crate) fn lives(&self, server: &Server) -> impl Fn(&Step) -> Life + use<> {
        let (names, client) = (self.names.clone(), Mutex::new(server.client()));
        move |step| {
            let mut key = Vec::new();
            names.counter(step.key, &mut key);
            life(&mut client.lock().expect("no test has panicked"), &key)
        }
    }
}

/// The life of a key.
fn life(client: &mut Client, key: &[u8]) -> Life {
    match client.ask(&[b"PTTL", key]) {
        Reply::Int(-2) => Life::Gone,
        Reply::Int(-1) => Life::Endless,
        // The last millisecond has begun.
        Reply::Int(left) => Life::For(Micros::from_millis(left.unsigned_abs() + 1)),
        other => panic!("{other:?}"),
    }
}

impl Store for TimedStore {
    type Ticket = Never;

    fn decide(&self, request: &Request<'_>) -> Answer<Never> {
        if request.steps.is_empty() {
            return Answer::Decided(Verdicts {
                allowed: true,
                outcomes: Default::default(),
                at: request.now,
                execution: Default::default(),
            });
        }
        let group = Group::new(request);
        let mut call = Call::new();
        call.push(&group, &self.names);
        let mut guard = self.client.lock().expect("no test has panicked");
        let (client, now) = &mut *guard;
        *now = request.now.max(*now);
        let mut pipeline = Vec::new();
        push(&self.script, &call, *now, &mut pipeline);
        client.send(&pipeline);
        let reply = client.read();
        let mut answers = answers(&[group], &reply);
        assert_eq!(answers.len(), 1);
        Answer::Decided(answers.remove(0))
    }
}
