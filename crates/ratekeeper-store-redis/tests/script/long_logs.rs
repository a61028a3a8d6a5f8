//! The longest sliding logs are copied a bounded number of times: a server that is busy answers nobody.

use ratekeeper_core::{Algorithm, Ask, Limit, LimitSpec, Micros, Mode, Moment, State, Timestamp};
use ratekeeper_store::{Charge, CounterKey, Request, Step, StepOutcome};
use ratekeeper_store_redis::script::{Call, Group, KeyName, Script};
use ratekeeper_testkit::redis::{Client, Reply, Server, encode};

use crate::timed_store::{answers, load, names, push};

const START: Timestamp = Timestamp::from_secs(1_789_000_123);
const WINDOW: Micros = Micros::from_secs(60);

const KEY: CounterKey = CounterKey {
    subject: 1,
    identity: 2,
};

/// The longest log that a limit may have.
const HITS: i64 = 10_000;

/// Bytes that the log has in the server.
const LENGTH: u64 = 2 + 9 * HITS.unsigned_abs();

/// Before the script, to count the bytes that it cuts out of texts.
const COUNTING: &str = "local string = setmetatable({sub = function(...)
  local part = string.sub(...)
  redis.call('INCRBY', 'copied', #part)
  return part
end}, {__index = string})
";

/// A full log of single hits, in the server and in core.
struct Log {
    client: Client,
    script: &'static Script,
    names: KeyName,
    key: Vec<u8>,
    limit: Limit,
    state: State,
    now: Timestamp,
}

impl Log {
    fn full(server: &Server) -> Self {
        let quota = HITS.unsigned_abs();
        let spec = LimitSpec::new(Algorithm::SlidingLog, quota, WINDOW);
        let limit = Limit::try_new(spec).expect("a valid limit");
        let (mut client, names, mut key) = (server.client(), names(), Vec::new());
        names.counter(KEY, &mut key);
        let mut log = Self {
            script: load(&mut client),
            client,
            names,
            key,
            limit,
            state: State::new(limit.shape()),
            now: START,
        };
        let mut pipeline = Vec::new();
        for _ in 0..HITS {
            log.now = log.now.after(Micros::new(1));
            let (_, call) = log.call(1);
            push(log.script, &call, log.now, &mut pipeline);
            log.core(1);
        }
        log.client.send(&pipeline);
        for _ in 0..HITS {
            assert!(!log.client.read().is_error());
        }
        log
    }

    /// The log as the server has it.
    fn value(&mut self) -> Vec<u8> {
        match self.client.ask(&[b"GET", &self.key[..]]) {
            Reply::Bytes(value) => value,
            other => panic!("{other:?}"),
        }
    }

    fn call(&self, hits: i64) -> (Group, Call) {
        let step = Step {
            hits,
            charge: Charge::Always,
            ..Step::new(KEY, self.limit)
        };
        let group = Group::new(&Request::new(&[step], Mode::default(), self.now));
        let mut call = Call::new();
        call.push(&group, &self.names);
        (group, call)
    }

    /// Charges core's state, whatever fits, and returns the answer.
    fn core(&mut self, hits: i64) -> StepOutcome {
        let at = Moment::at(self.now);
        let outcome = self.limit.test(self.state.as_ref(), Ask::hits(hits), &at);
        let charged = self.limit.charge(self.state.as_mut(), hits, &at);
        charged.expect("a log is on the heap");
        StepOutcome::Counted(outcome)
    }

    /// Takes hits, whatever fits, and returns the bytes that were copied. The answer is core's.
    fn take(&mut self, hits: i64) -> u64 {
        let (group, call) = self.call(hits);
        let text = [COUNTING, self.script.text()].concat();
        let (count, now) = (call.keys().len().to_string(), self.now.as_micros());
        let mut args: Vec<&[u8]> = vec![b"EVAL", text.as_bytes(), count.as_bytes()];
        args.extend(call.keys());
        let now = now.to_string();
        args.extend([call.plan(), now.as_bytes()]);
        let mut bytes = Vec::new();
        encode(&args, &mut bytes);
        self.client.ask(&["SET", "copied", "0"]);
        self.client.send(&bytes);
        let reply = self.client.read();
        let found = answers(&[group], &reply).remove(0);
        assert_eq!(found.outcomes[0], self.core(hits), "{hits} hits");
        let copied = self.client.ask(&["GET", "copied"]);
        copied.text().parse().expect("a number")
    }
}

#[test]
fn a_charge_copies_a_long_log_a_few_times_however_many_hits_it_drops_or_gives_back() {
    let server = Server::start();
    let mut log = Log::full(&server);
    let (value, state, now) = (log.value(), log.state.clone(), log.now);
    for hits in [1, HITS - 1, HITS / 2, 1 - HITS, -HITS / 2, -HITS] {
        (log.state, log.now) = (state.clone(), now);
        log.client.ask(&[b"SET", &log.key[..], &value]);
        let copied = log.take(hits);
        assert!(
            copied <= 3 * LENGTH,
            "{hits} hits: {copied} of {LENGTH} bytes"
        );
        log.now = log.now.after(Micros::new(1));
        for hits in [0, 1, -2] {
            log.take(hits);
        }
    }
}
