//! The format of files of tests.

mod values;

use std::borrow::Cow;
use std::rc::Rc;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::fields::Fields;
use super::mapping::{Keys, Mapping, Properties, Shape, Value, read_mapping, schema_of};
use super::values::{List, Moment, Text};
use crate::draft::Field;
use crate::draft::quota::Duration;
use crate::mark::At;
use crate::report::Report;
use crate::table::{Typed, mappings};
use crate::test_values::TestAnswer;
use crate::yaml::Node;
use values::{EntryPairs, ExpectForm, HeaderPairs, Hits, Times, Wait};

/// The schema of a file.
pub(crate) fn schema() -> Schema {
    let generator = SchemaSettings::draft2020_12().into_generator();
    generator.into_root_schema_for::<TestFile>()
}

mappings! {
    /// Tests of rules: one file.
    struct TestFile ("at the top of a file of tests", ["rules", "tests"]) {
        /// The rules to test: a file or a folder, relative to this file.
        rules: Text,
        /// The domain of requests that name none.
        domain: Text,
        /// The tests. Each begins with fresh counters.
        tests: List<Test> where { "minItems": 1 } = required,
    }

    /// A test: requests in their order, and the answers that they get.
    struct Test ("in a test", ["name", "steps"]) {
        /// The name, as results show it.
        name: Text = required,
        /// The rules to test, in place of those of the file.
        rules: Text,
        /// The domain of requests that name none.
        domain: Text,
        /// The plan of the tenants that the requests name, until a step names another.
        plan: Text,
        /// The time at which the test begins: 2026-01-01T00:00:00Z unless set.
        start: Moment,
        /// The requests.
        steps: List<Step> where { "minItems": 1 } = required,
    }

    /// A request, or several that are alike, and the answer.
    struct Step ("in a step", ["at", "entries", "request", "expect"]) {
        /// The time since the test began; that of the request before unless set.
        at: Duration,
        /// The plan of the tenants that the request names, from now on.
        plan: Text,
        /// The domain of the request.
        domain: Text,
        /// The entries of the request's only descriptor.
        entries: EntryPairs,
        /// The hits that each descriptor costs: 1 unless set. 0 only looks, a negative number gives back.
        hits: Hits,
        /// The descriptors of the request, if there are several.
        descriptors: List<View> where { "minItems": 1 },
        /// An HTTP request in place of descriptors, such as `GET /product/7`; settings turn it into descriptors.
        request: Text,
        /// The headers of the HTTP request.
        headers: HeaderPairs,
        /// The address of the client that sends the HTTP request; 127.0.0.1 unless set.
        client: Text,
        /// The number of requests: 1 unless set.
        times: Times,
        /// The time between two of them; all come at once unless set.
        every: Duration,
        /// `allowed` or `denied`, or what is expected of the answers. Without it they may be any.
        expect: ExpectForm,
    }

    /// A descriptor.
    struct View ("in a step's descriptor", ["entries", "hits"]) {
        /// The entries.
        entries: EntryPairs = required,
        /// The hits that it costs; those of the step unless set.
        hits: Hits,
    }

    /// The answers that are expected of a step's requests. Without counts, of each request; the rest is that of the last one.
    struct Expect ("in expect", ["decision", "rule", "remaining", "retry_after"]) {
        /// allowed or denied: the answer to every request of the step.
        decision: TestAnswer,
        /// The number of the step's requests that are allowed.
        allowed: u64,
        /// The number of the step's requests that are denied.
        denied: u64,
        /// The id of the rule that decides; `~` if no limit applies.
        rule: Text,
        /// The limit as callers are told it.
        limit: u64,
        /// The hits that remain.
        remaining: u64,
        /// The wait after which a denied request would pass, to the millisecond; `never` if it never would.
        retry_after: Wait,
        /// The wait until more remains, to the millisecond.
        reset_after: Duration,
        /// The time for which an allowed request is held back, to the millisecond.
        delay: Duration,
        /// The ids of the rules that would have denied the request, were they enforced: those in shadow.
        shadow_denied: ShadowRules,
        /// The status of a refusal of the HTTP request before any limit is asked: 400, 401.
        refused: u64 where { "minimum": 400, "maximum": 599 },
    }
}

/// Ids of rules: one, or a list.
type ShadowRules = super::values::Entries;
