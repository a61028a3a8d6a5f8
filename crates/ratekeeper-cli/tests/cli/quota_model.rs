//! Random edits of a tenant through the command, the API and the page, beside a plain map: nothing vanishes that was
//! not named.

use crate::dashboard::page::Page;
use crate::fleet::{Fleet, ORDERS};
use crate::support::{Ratekeeper, http};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::random::Random;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

const RULES: &str = "domain: d
evaluation: path
tenant: customer
plans: [free, pro, enterprise]
descriptors:
- key: customer
  rate_limit: { window: 24h, limit: 1000 }
  plans:
    pro: { window: 24h, limit: 2000 }
    enterprise: { window: 24h, limit: 5000 }
  descriptors:
  - { key: endpoint, value: POST /orders, rate_limit: { window: 24h, limit: 500 } }
  - { key: endpoint, value: GET /denied, rate_limit: { window: 24h, limit: 1 } }
";

/// The edits through the command and the API, and those through the page.
const EDITS: usize = 40;
const PAGE_EDITS: usize = 6;

const PLANS: [&str; 3] = ["free", "pro", "enterprise"];
const DESCRIPTORS: [&str; 3] = ["default", ORDERS, "endpoint:GET /reports"];

/// Starts that are over and starts that are to come, and ends after all of them.
const STARTS: [&str; 3] = ["2020-01-01", "2037-01-05", "2038-01-05"];
const ENDS: [&str; 2] = ["2039-01-05", "2040-01-05"];

/// A time after all starts that have begun, and before all that have not.
const ABOUT_NOW: &str = "2036";

/// The name of plans among descriptors.
const PLAN: &str = "plan";

/// Behind the value of an override that is a budget, as flags have it. One that takes its place stays a budget.
const BUDGET: &str = ",post_paid=true";

/// The plans and overrides of a tenant: by name and start, the end and the value. No date is an empty text.
type Parts = BTreeMap<(String, String), (String, String)>;

fn midnight(day: &str) -> String {
    match day {
        "" => String::new(),
        day => format!("{day}T00:00:00Z"),
    }
}

/// The version of the tenant and its own plans and overrides, by the service.
fn read(node: &Ratekeeper) -> (u64, Value) {
    let (status, text) = http(node.admin, "GET", "/admin/v1/quotas/acme", "");
    assert_eq!(status, 200, "{text}");
    let tenant: Value = serde_json::from_str(&text).expect("it is JSON");
    (
        tenant["version"].as_u64().expect("it has one"),
        tenant["own"].clone(),
    )
}

fn parts(own: &Value) -> Parts {
    let date = |part: &Value, name: &str| part[name].as_str().unwrap_or("").to_owned();
    let mut parts = Parts::new();
    if let Some(plan) = own["plan"].as_str().filter(|plan| *plan != "custom") {
        parts.insert(
            (PLAN.to_owned(), String::new()),
            (String::new(), plan.to_owned()),
        );
    }
    let tiers = own["plans"].as_array().into_iter().flatten();
    let tiers = tiers.map(|tier| (PLAN.to_owned(), tier, date(tier, "plan")));
    let overrides = own["overrides"].as_array().into_iter().flatten();
    let overrides = overrides.map(|own| {
        let option = match own["post_paid"].as_bool() {
            Some(true) => BUDGET,
            _ => "",
        };
        let value = format!("{}{option}", own["requests_per_unit"]);
        (date(own, "descriptor"), own, value)
    });
    for (name, part, value) in tiers.chain(overrides) {
        let key = (name, date(part, "effective_at"));
        parts.insert(key, (date(part, "expires_at"), value));
    }
    parts
}

/// The body of a PUT.
fn body(parts: &Parts) -> Value {
    let mut lists = [Vec::new(), Vec::new()];
    for ((name, start), (end, value)) in parts {
        let mut part = Map::new();
        for (field, date) in [("effective_at", start), ("expires_at", end)] {
            if !date.is_empty() {
                part.insert(field.to_owned(), json!(date));
            }
        }
        let is_plan = name == PLAN;
        if is_plan {
            part.insert("plan".to_owned(), json!(value));
        } else {
            let hits = value.trim_end_matches(BUDGET);
            let hits: u64 = hits.parse().expect("it is a number");
            if value.ends_with(BUDGET) {
                part.insert("post_paid".to_owned(), json!(true));
            }
            let fields = [
                ("descriptor", json!(name)),
                ("requests_per_unit", json!(hits)),
                ("unit", json!("day")),
            ];
            part.extend(fields.map(|(field, value)| (field.to_owned(), value)));
        }
        lists[usize::from(!is_plan)].push(Value::Object(part));
    }
    let [tiers, overrides] = lists;
    json!({ "plans": tiers, "overrides": overrides })
}

/// A plan or an override that is named, with its dates.
struct Named {
    name: String,
    value: String,
    start: &'static str,
    end: &'static str,
}

impl Named {
    fn random(random: &mut Random, number: usize) -> Self {
        let is_plan = random.happens(400);
        let name = if is_plan {
            PLAN
        } else {
            random.pick(&DESCRIPTORS)
        };
        let dated = |random: &mut Random, days: &[&'static str]| match random.happens(500) {
            true => random.pick(days),
            false => "",
        };
        Self {
            name: name.to_owned(),
            value: match is_plan {
                true => random.pick(&PLANS).to_owned(),
                false if random.happens(300) => format!("{}{BUDGET}", 1_000 + number),
                false => (1_000 + number).to_string(),
            },
            start: dated(random, &STARTS),
            end: dated(random, &ENDS),
        }
    }

    /// The flags of `quota set`.
    fn flags(&self) -> [String; 2] {
        let Self {
            name,
            value,
            start,
            end,
        } = self;
        let dates = match (*start, *end) {
            ("", "") => String::new(),
            (start, end) => format!("@{}..{}", midnight(start), midnight(end)),
        };
        match name == PLAN {
            true => ["--plan".to_owned(), format!("{value}{dates}")],
            false => {
                let hits = value.trim_end_matches(BUDGET);
                let option = &value[hits.len()..];
                let own = format!("{name}={hits}/day{option}{dates}");
                ["--override".to_owned(), own]
            }
        }
    }

    /// Names the part in the map. One that begins now has the start that the service shows.
    fn put(&self, parts: &mut Parts, shown: &Parts) {
        let end = midnight(self.end);
        let same: Vec<_> = parts
            .iter()
            .filter(|((name, _), _)| *name == self.name)
            .collect();
        let begun = same.iter().filter(|((_, start), _)| &**start < ABOUT_NOW);
        let start = match (self.start, self.end) {
            ("", "") => {
                let lasting = begun.filter(|(_, (end, _))| end.is_empty());
                let found = lasting.map(|((_, start), _)| start.clone()).max();
                found.unwrap_or_else(|| make_room(parts, &self.name))
            }
            ("", _) => {
                let mut repeated = begun.filter(|(_, (other, _))| *other == end);
                let repeated = repeated.next().map(|((_, start), _)| start.clone());
                repeated.unwrap_or_else(|| {
                    let of_it = shown.iter().filter(|((name, start), (other, value))| {
                        let is_it = *name == self.name && *other == end && *value == self.value;
                        is_it && is_about_now(start)
                    });
                    let found = of_it.map(|((_, start), _)| start.clone()).max();
                    found.unwrap_or_else(|| panic!("{} did not begin now: {shown:?}", self.name))
                })
            }
            (start, _) => midnight(start),
        };
        let key = (self.name.clone(), start);
        let before = parts.get(&key);
        let is_budget = before.is_some_and(|(_, value)| value.ends_with(BUDGET));
        let mut value = self.value.clone();
        if is_budget && self.name != PLAN && !value.ends_with(BUDGET) {
            value.push_str(BUDGET);
        }
        parts.insert(key, (end, value));
    }

    /// Returns true if nothing changes by it, so that the page has nothing to ask. A plan that begins now may be one.
    fn is_there(&self, parts: &Parts) -> bool {
        if self.start.is_empty() && !self.end.is_empty() {
            return self.name == PLAN;
        }
        let mut after = parts.clone();
        self.put(&mut after, parts);
        after == *parts
    }

    /// Returns true if the map alone says what it takes the place of.
    fn is_clear(&self, parts: &Parts) -> bool {
        let end = midnight(self.end);
        let same = parts.iter().filter(|((name, start), (other, _))| {
            *name == self.name && &**start < ABOUT_NOW && *other == end
        });
        !self.start.is_empty() || self.end.is_empty() || same.count() <= 1
    }
}

/// Moves those without a start that end, so that one without both dates has room before them.
fn make_room(parts: &mut Parts, name: &str) -> String {
    let mut moved = None;
    for second in 0..3 {
        let start = match second {
            0 => String::new(),
            second => format!("1970-01-01T00:00:0{second}Z"),
        };
        let key = (name.to_owned(), start);
        let next = parts.remove(&key);
        if let Some(part) = moved.take() {
            parts.insert(key, part);
        }
        moved = next;
        if moved.is_none() {
            break;
        }
    }
    assert!(moved.is_none(), "there are no more than two of them");
    String::new()
}

fn is_about_now(start: &str) -> bool {
    let Ok(start) = start.parse::<jiff::Timestamp>() else {
        return false;
    };
    jiff::Timestamp::now().duration_since(start).as_secs().abs() < 600
}

/// A tenant under edit, and the map beside it.
struct Edited<'a> {
    fleet: &'a Fleet,
    node: &'a Ratekeeper,
    random: Random,
    parts: Parts,
    version: u64,
    /// The parts before the last change.
    before: Option<Parts>,
}

impl Edited<'_> {
    /// Compares the tenant with the map after an edit.
    fn compare(&mut self, edit: &str, mut expected: impl FnMut(&mut Parts, &Parts)) {
        let (version, own) = read(self.node);
        let shown = parts(&own);
        let before = self.parts.clone();
        expected(&mut self.parts, &shown);
        assert_eq!(shown, self.parts, "after {edit}\nbefore it: {before:?}");
        if version != self.version {
            (self.version, self.before) = (version, Some(before));
        }
    }

    fn tell(&self, args: &[&str]) {
        self.fleet.done(self.node, args);
    }

    fn by_command(&mut self, number: usize) {
        let named = Named::random(&mut self.random, number);
        if !named.is_clear(&self.parts) {
            return;
        }
        let [flag, value] = named.flags();
        self.tell(&["quota", "set", "acme", &flag, &value]);
        self.compare(&format!("{number}: {flag} {value}"), |parts, shown| {
            named.put(parts, shown)
        });
    }

    /// Removes all of a name, or the one with a start.
    fn by_removal(&mut self, number: usize) {
        let keys: Vec<_> = self.parts.keys().cloned().collect();
        let at = usize::try_from(self.random.below(keys.len() as u64)).expect("it is small");
        let Some((name, start)) = keys.get(at) else {
            return;
        };
        let all = start.is_empty() || self.random.happens(300);
        let value = self.parts[&keys[at]].1.clone();
        let of = if name == PLAN { &value } else { name };
        let flag = if name == PLAN {
            "--remove-plan"
        } else {
            "--remove-override"
        };
        let what = if all {
            of.clone()
        } else {
            format!("{of}@{start}")
        };
        self.tell(&["quota", "set", "acme", flag, &what]);
        self.compare(&format!("{number}: {flag} {what}"), |parts, _| {
            parts.retain(|(other, its), (_, other_value)| {
                let is_same = name == other && (name != PLAN || other_value == of);
                !(is_same && (all || its == start))
            });
        });
    }

    /// Replaces all by what is there and one part more, or one less.
    fn by_api(&mut self, number: usize) {
        let mut wanted = self.parts.clone();
        let named = Named::random(&mut self.random, number);
        let key = (named.name.clone(), midnight(named.start));
        if self.random.happens(250) {
            wanted.pop_first();
        } else {
            wanted.insert(key, (midnight(named.end), named.value));
        }
        let body = body(&wanted).to_string();
        let (status, answer) = http(self.node.admin, "PUT", "/admin/v1/quotas/acme", &body);
        assert_eq!(status, 200, "{body}: {answer}");
        self.compare(&format!("{number}: PUT {body}"), |parts, _| {
            parts.clone_from(&wanted)
        });
    }

    fn by_revert(&mut self, number: usize) {
        if let Some(before) = self.before.clone() {
            self.tell(&["quota", "revert", "acme"]);
            self.compare(&format!("{number}: revert"), |parts, _| {
                parts.clone_from(&before)
            });
        }
    }

    fn by_page(&mut self, page: &mut Page, number: usize) {
        let mut named = Named::random(&mut self.random, number);
        // The form has no options; those that are there stay.
        let hits = named.value.trim_end_matches(BUDGET).len();
        named.value.truncate(hits);
        if self.random.happens(300) {
            self.by_button(page, number);
        } else if named.is_clear(&self.parts) && !named.is_there(&self.parts) {
            self.by_form(page, &named);
        }
    }

    /// Fills the form in, and sends it.
    fn by_form(&mut self, page: &mut Page, named: &Named) {
        page.wait(".quotas button[type=submit]", |text| text == "Change");
        if named.name == PLAN {
            let plan = json!({"command": "choose", "at": "#quota-plan", "value": named.value});
            page.tell(plan);
        } else {
            page.write("#quota-descriptor", &named.name);
            page.write("#quota-amount", &named.value);
            page.tell(json!({"command": "choose", "at": "#quota-unit", "value": "day"}));
        }
        page.write("#quota-from", named.start);
        page.write("#quota-until", named.end);
        page.click(".quotas button[type=submit]");
        self.confirm(page);
        let edit = format!("on the page: {:?}", named.flags());
        self.compare(&edit, |parts, shown| named.put(parts, shown));
    }

    /// Removes one part by its button.
    fn by_button(&mut self, page: &mut Page, number: usize) {
        let (_, own) = read(self.node);
        let overrides = own["overrides"].as_array().map_or(0, Vec::len);
        if overrides == 0 {
            return;
        }
        page.wait(".quotas button[type=submit]", |text| text == "Change");
        let at = self.random.below(overrides as u64);
        let own = &own["overrides"][usize::try_from(at).expect("it is small")];
        let date = own["effective_at"].as_str().unwrap_or("");
        let key = (
            own["descriptor"].as_str().expect("it has one").to_owned(),
            date.to_owned(),
        );
        page.click(&format!(".overrides li:nth-child({}) .remove", at + 1));
        self.confirm(page);
        self.compare(
            &format!("{number}: on the page: remove {key:?}"),
            |parts, _| {
                parts.remove(&key);
            },
        );
    }

    /// Says yes to the question of the page, and waits for the change.
    fn confirm(&self, page: &mut Page) {
        page.shows(".question", "Change acme?");
        page.click(".question .confirm");
        eventually("the tenant is changed", || {
            read(self.node).0 != self.version
        });
    }
}

#[test]
fn nothing_vanishes_that_was_not_named() {
    let seed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let seed =
        std::env::var("QUOTA_SEED").map_or(seed, |seed| seed.parse().expect("it is a number"));
    println!("QUOTA_SEED={seed}");
    let fleet = Fleet::sqlite().with_rules(RULES);
    let node = fleet.node("a");
    fleet.done(
        &node,
        &[
            "quota",
            "set",
            "acme",
            "--plan",
            "pro@2037-01-05T00:00:00Z..2039-01-05T00:00:00Z",
        ],
    );
    let (version, own) = read(&node);
    let mut edited = Edited {
        fleet: &fleet,
        node: &node,
        random: Random::new(seed),
        parts: parts(&own),
        version,
        before: None,
    };
    assert_eq!(edited.parts.len(), 1, "{own}");
    for number in 0..EDITS {
        match edited.random.below(10) {
            0..5 => edited.by_command(number),
            5 | 6 => edited.by_removal(number),
            7 | 8 => edited.by_api(number),
            _ => edited.by_revert(number),
        }
    }
    // The page finds a tenant among those that are denied.
    for _ in 0..3 {
        node.check(&[("customer", "acme"), ("endpoint", "GET /denied")]);
    }
    let mut page = Page::open(&node);
    page.shows("main", "customer:acme");
    // One plan that is to come, and an override: the page once took the plan in force for all that there is.
    let scheduled = "pro@2037-01-05T00:00:00Z..2039-01-05T00:00:00Z";
    let orders = format!("{ORDERS}=900/day");
    let all = [
        "--replace",
        "--yes",
        "--plan",
        scheduled,
        "--override",
        &orders,
    ];
    edited.tell(&[&["quota", "set", "acme"][..], &all].concat());
    edited.compare("a replacement", |parts, shown| parts.clone_from(shown));
    assert_eq!(edited.parts.len(), 2, "{:?}", edited.parts);
    page.click(".link");
    let whole = Named {
        name: "default".to_owned(),
        value: "999".to_owned(),
        start: "",
        end: "",
    };
    edited.by_form(&mut page, &whole);
    for number in EDITS..EDITS + PAGE_EDITS {
        edited.by_page(&mut page, number);
    }
    page.end();
    assert_eq!(fleet.verified(), edited.version);
}
