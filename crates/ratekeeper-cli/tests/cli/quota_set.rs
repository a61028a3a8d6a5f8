//! `quota set` changes what it names and nothing else.

use crate::fleet::{Fleet, ORDERS, limits};
use crate::support::{Ratekeeper, run, write};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::ratekeeper::Args;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::thread;

const LATER: &str = "2037-01-05T00:00:00Z";
const LATER_STILL: &str = "2037-01-08T00:00:00Z";

/// Rules whose file lists tenants.
const LISTING: &str = "domain: d
evaluation: path
tenant: customer
plans: [free, enterprise, pro]
descriptors:
- key: customer
  rate_limit: { window: 24h, limit: 10 }
  plans:
    enterprise: { window: 24h, limit: 5000 }
    pro: { window: 24h, limit: 1000 }
  descriptors:
  - { key: endpoint, value: POST /orders, rate_limit: { window: 24h, limit: 20 } }
tenants:
- tenant: acme
  plan: enterprise
  overrides: [ { descriptor: \"endpoint:POST /orders\", window: 24h, limit: 15 } ]
- { tenant: globex, plan: enterprise }
- { tenant: hooli, plan: enterprise }
";

/// The own plans and overrides of a tenant.
fn own(fleet: &Fleet, node: &Ratekeeper, tenant: &str) -> Value {
    fleet.json(node, &["quota", "get", tenant])["own"].clone()
}

fn orders(limit: u64) -> Value {
    json!({ "descriptor": ORDERS, "requests_per_unit": limit, "unit": "day" })
}

/// Answers each connection to `listener` with the next of `answers`, having read no more than the beginning.
fn answering<const N: usize>(listener: &UnixListener, answers: [(u16, &str); N]) {
    for (status, body) in answers {
        let (mut connection, _) = listener.accept().expect("a client comes");
        let mut beginning = [0; 64];
        let read = connection.read(&mut beginning).expect("it asks");
        if beginning[..read].starts_with(b"GET") {
            let _ = connection.read(&mut [0; 8_192]);
        }
        let length = body.len();
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}");
        connection.write_all(answer.as_bytes()).expect("it listens");
    }
}

#[test]
fn a_change_that_is_refused_before_all_of_it_is_read_is_a_failure() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let listener = UnixListener::bind(folder.path().join("admin")).expect("a socket can be bound");
    // More than a socket holds.
    let document = json!({ "plan": "x".repeat(900_000) });
    write(folder.path(), "big.json", &document.to_string());
    let admin = format!("unix:{}", folder.path().join("admin").display());
    let set = [
        "quota", "set", "acme", "--file", "big.json", "--yes", "--admin", &admin,
    ];
    let missing = json!({ "detail": "no such tenant", "code": "UNKNOWN_TENANT" }).to_string();
    let large = json!({ "detail": "the body is too large", "code": "TOO_LARGE" }).to_string();
    thread::scope(|scope| {
        scope.spawn(|| answering(&listener, [(404, &missing), (413, &large)]));
        let told = run(folder.path(), &set[..]);
        assert_eq!(told.code, Some(1), "{}", told.out);
        assert_contains(&told.err, "413: the body is too large");
    });
    // One that says nothing is told as what it is.
    thread::scope(|scope| {
        scope.spawn(|| {
            answering(&listener, [(404, &missing)]);
            let (mut connection, _) = listener.accept().expect("a client comes");
            connection.read(&mut [0; 64]).expect("it asks")
        });
        let told = run(folder.path(), &set[..]);
        assert_eq!(told.code, Some(1), "{}", told.out);
        assert_contains(&told.err, "did not answer to the end");
    });
}

#[test]
fn an_answer_that_breaks_off_is_not_taken_for_all_of_it() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let listener = UnixListener::bind(folder.path().join("admin")).expect("a socket can be bound");
    let admin = format!("unix:{}", folder.path().join("admin").display());
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut connection, _) = listener.accept().expect("a client comes");
            let _ = connection.read(&mut [0; 8_192]).expect("it asks");
            let half = "HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n{\"tenant\":\"acme\",\"plan\":\"pro\"}\n";
            connection.write_all(half.as_bytes()).expect("it listens");
        });
        let told = run(folder.path(), &["quota", "export", "--admin", &admin][..]);
        assert_eq!((told.code, &*told.out), (Some(1), ""));
        assert_contains(&told.err, "did not answer to the end");
    });
}

#[test]
fn what_is_not_named_stays() {
    let fleet = Fleet::sqlite();
    let node = fleet.node("a");
    let raise = format!("{ORDERS}=500/day");
    let set = |args: &[&str]| fleet.done(&node, &[&["quota", "set", "hooli"], args].concat());
    set(&["--plan", "pro", "--override", &raise]);

    // Another override leaves the plan and the first override alone, and has dates of its own.
    let week = format!("default=3000/day@{LATER}..{LATER_STILL}");
    let told = set(&["--override", &week]);
    let raised = json!({
        "descriptor": "default", "requests_per_unit": 3000, "unit": "day",
        "effective_at": LATER, "expires_at": LATER_STILL,
    });
    let expected = json!({ "plan": "pro", "overrides": [orders(500), raised] });
    assert_eq!(own(&fleet, &node, "hooli"), expected);
    let line = format!("  default: none -> 3000 per day from {LATER} until {LATER_STILL}\n");
    let head = "hooli: version 1 -> 2\n";
    assert!(told.starts_with(&(head.to_owned() + &line)), "{told}");
    assert_eq!(limits(&node, "hooli"), (1_000, 500));

    // An override can be a budget; the limit that it replaces is none.
    let told = set(&[
        "--override",
        "model:large=500/day,post_paid,max_debt=90,algorithm=gcra",
    ]);
    let budget = "model:large: none -> 500 per day, gcra, post-paid, at most 90 in debt";
    assert_contains(&told, budget);
    let budget = json!({
        "descriptor": "model:large", "requests_per_unit": 500, "unit": "day", "algorithm": "gcra",
        "post_paid": true, "max_debt": 90,
    });
    assert_eq!(own(&fleet, &node, "hooli")["overrides"][2], budget);
    set(&["--remove-override", "model:large"]);

    // A typo in a descriptor does not take the right one away.
    set(&["--override", "endpoint:POST /order=500/day"]);
    assert_eq!(limits(&node, "hooli"), (1_000, 500));
    set(&["--remove-override", "endpoint:POST /order"]);
    assert_eq!(own(&fleet, &node, "hooli"), expected);

    // A plan for a while leaves the one before and after it.
    let told = set(&["--plan", &format!("enterprise@{LATER}..{LATER_STILL}")]);
    assert_contains(&told, "  plan: none -> enterprise from 2037");
    assert_eq!(
        own(&fleet, &node, "hooli")["plans"],
        json!([
            { "plan": "pro" },
            { "plan": "enterprise", "effective_at": LATER, "expires_at": LATER_STILL },
        ])
    );
    let told = set(&["--plan", "free"]);
    assert_contains(&told, "  plan: pro -> free\n");
    let told = set(&["--plan", "free"]);
    assert!(told.starts_with("hooli: nothing to change\n"), "{told}");
    set(&["--remove-plan", &format!("enterprise@{LATER}")]);
    assert_eq!(own(&fleet, &node, "hooli")["plan"], "free");

    let gone = fleet.tell(&node, &["quota", "set", "hooli", "--remove-plan", "pro"]);
    let said = "there is no plan pro to remove; the tenant has free";
    assert_contains(&gone.err, said);
    let bare = fleet.tell(&node, &["quota", "set", "hooli"]);
    assert_contains(&bare.err, "nothing is named");
}

#[test]
fn what_files_give_stays_unless_it_is_named() {
    let fleet = Fleet::sqlite().with_rules(LISTING);
    let node = fleet.node("a");
    assert_eq!(limits(&node, "acme"), (5_000, 15));
    let set = |tenant: &str, args: &[&str]| {
        fleet.done(&node, &[&["quota", "set", tenant], args].concat())
    };
    let raise = format!("{ORDERS}=30/day@..{LATER}");
    let told = fleet.tell(&node, &["quota", "set", "acme", "--override", &raise]);
    let head = "acme: new\n  endpoint:POST /orders: none -> 30 per day";
    assert!(told.out.starts_with(head), "{}", told.out);
    assert_eq!(told.out.matches(" -> ").count(), 1, "{}", told.out);
    assert_eq!(told.err, "");
    assert_eq!(limits(&node, "acme"), (5_000, 30));
    let own = own(&fleet, &node, "acme");
    assert_eq!(own["plan"], "enterprise", "{own}");
    assert_eq!(own["overrides"][0]["requests_per_unit"], 15, "{own}");

    // A plan that begins later leaves the one of the file until then.
    set("globex", &["--plan", &format!("pro@{LATER}..")]);
    assert_eq!(limits(&node, "globex").0, 5_000);
    let undone = fleet.tell(&node, &["quota", "revert", "globex"]);
    let head = "globex has what files give it, and nothing of its own any more\n";
    assert!(undone.out.starts_with(head), "{}", undone.out);
    assert!(!undone.out.contains("enterprise"), "{}", undone.out);
    assert_eq!(limits(&node, "globex").0, 5_000);
    // What is replaced as a whole is told, and wants a yes.
    let args = [
        "quota",
        "set",
        "hooli",
        "--replace",
        "--override",
        "default=7/day",
    ];
    let refused = fleet.tell(&node, &args);
    assert_contains(&refused.err, "plan: enterprise -> none");
    assert_eq!(limits(&node, "hooli").0, 5_000);
    fleet.done(&node, &["quota", "delete", "acme"]);
    assert_eq!(limits(&node, "acme"), (5_000, 15));
}

#[test]
fn an_end_alone_holds_from_now_and_gives_back_what_was_before() {
    let fleet = Fleet::sqlite();
    let node = fleet.node("a");
    let set = |own: &str| fleet.tell(&node, &["quota", "set", "acme", "--override", own]);
    let until = format!("{ORDERS}=300/day@..{LATER}");
    fleet.done(&node, &["quota", "set", "acme", "--plan", "pro"]);
    set(&format!("{ORDERS}=30/day"));
    set(&until);
    assert_eq!(limits(&node, "acme").1, 300);
    // Said twice it is there once, and a limit without dates stays behind it.
    set(&until);
    let said = set(&format!("{ORDERS}=40/day"));
    assert_contains(&said.err, "goes before 40 per day");
    assert_eq!(limits(&node, "acme").1, 300);
    let own = own(&fleet, &node, "acme");
    assert_eq!(own["overrides"][0], orders(40));
    assert_eq!(own["overrides"][1]["expires_at"], LATER);
    assert_eq!(own["overrides"].as_array().map(Vec::len), Some(2));
}

#[test]
fn editors_at_the_same_time_undo_nothing() {
    let fleet = Fleet::sqlite();
    let node = fleet.node("a");
    fleet.done(&node, &["quota", "set", "acme", "--plan", "pro"]);
    let names = ["a", "b", "c", "d"];
    std::thread::scope(|scope| {
        for name in names {
            let own = format!("endpoint:{name}=5/day");
            let (fleet, node) = (&fleet, &node);
            scope.spawn(move || fleet.done(node, &["quota", "set", "acme", "--override", &own]));
        }
    });
    let own = own(&fleet, &node, "acme");
    let set = own["overrides"].as_array().expect("a list").iter();
    let mut set: Vec<_> = set.filter_map(|own| own["descriptor"].as_str()).collect();
    set.sort_unstable();
    assert_eq!(set, names.map(|name| format!("endpoint:{name}")));
    assert_eq!(own["plan"], "pro");
}

#[test]
fn a_replacement_says_what_vanishes_and_wants_a_yes() {
    let fleet = Fleet::sqlite();
    let node = fleet.node("a");
    let raise = format!("{ORDERS}=500/day");
    let first = [
        "quota",
        "set",
        "acme",
        "--plan",
        "pro",
        "--override",
        &raise,
    ];
    fleet.done(&node, &first);
    let before = own(&fleet, &node, "acme");

    // There is no terminal to ask on.
    let replace = "quota set acme --replace --override default=7/day".words();
    let refused = fleet.tell(&node, &replace);
    assert_eq!(refused.code, Some(1));
    for part in [
        "plan: pro -> none",
        "endpoint:POST /orders: 500 per day -> none",
        "--yes",
    ] {
        assert_contains(&refused.err, part);
    }
    assert_eq!(own(&fleet, &node, "acme"), before);
    fleet.done(&node, &[&replace[..], &["--yes"]].concat());
    assert_eq!(limits(&node, "acme"), (7, 7));

    // What a tenant has is a file that gives it back. Nothing vanishes where all is named.
    write(fleet.folder.path(), "acme.json", &before.to_string());
    let file = ["quota", "set", "acme", "--file", "acme.json"];
    let refused = fleet.tell(&node, &file);
    assert_contains(&refused.err, "default: 7 per day -> none");
    fleet.done(&node, &[&file[..], &["--yes"]].concat());
    assert_eq!(own(&fleet, &node, "acme"), before);
    fleet.done(&node, &file);
    fleet.done(&node, &[&first[..], &["--replace"]].concat());

    // A date for all of it cuts what there is.
    let later = [
        "quota",
        "set",
        "acme",
        "--replace",
        "--plan",
        "free",
        "--effective-at",
        LATER,
    ];
    let refused = fleet.tell(&node, &later);
    let cut = format!("plan: pro -> pro until {LATER}");
    assert_contains(&refused.err, &cut);
}

#[test]
fn a_change_is_undone_by_the_trail() {
    let fleet = Fleet::sqlite();
    let node = fleet.node("a");
    let tell = |args: &[&str]| fleet.done(&node, &[&["quota"], args].concat());
    let raise = format!("{ORDERS}=500/day@{LATER}..{LATER_STILL}");
    tell(&["set", "acme", "--plan", "pro", "--override", &raise]);
    let first = own(&fleet, &node, "acme");
    tell(&["set", "acme", "--plan", "free", "--remove-override", ORDERS]);
    fleet.done(&node, &["reset", "acme"]);

    let told = tell(&["revert", "acme"]);
    assert_contains(&told, "acme: version 3 -> 4\n  plan: free -> pro\n");
    assert_eq!(own(&fleet, &node, "acme"), first);
    tell(&["undo", "acme"]);
    assert_eq!(
        own(&fleet, &node, "acme"),
        json!({ "plan": "free" }),
        "undone again"
    );
    tell(&["revert", "acme", "--to", "1"]);
    assert_eq!(own(&fleet, &node, "acme"), first);

    // A deletion, and that the tenant was put at all.
    tell(&["delete", "acme"]);
    tell(&["revert", "acme"]);
    assert_eq!(own(&fleet, &node, "acme"), first);
    tell(&["set", "new", "--plan", "pro"]);
    let told = tell(&["revert", "new"]);
    assert_contains(&told, "  plan: pro -> none\n");
    assert!(
        fleet
            .tell(&node, &["quota", "get", "new"])
            .err
            .contains("404")
    );
    let early = fleet.tell(&node, &["quota", "revert", "acme", "--to", "0"]);
    assert_contains(&early.err, "was not in the database");
    let late = fleet.tell(&node, &["quota", "revert", "acme", "--to", "1000"]);
    assert_eq!(late.code, Some(1), "{late:?}");
    assert_contains(&late.err, "there is no change 1000 yet, the last one is ");

    // The trail's own words are a file that `quota set` and a PUT take.
    let trail = fleet.json(&node, &["audit", "list", "--tenant", "acme"]);
    let after: Vec<_> = trail
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| &row["after"])
        .collect();
    assert_eq!(*after[0], first);
    assert_eq!(trail[0]["tenant"], "acme");
    write(
        fleet.folder.path(),
        "acme.json",
        &trail[3]["after"].to_string(),
    );
    tell(&["set", "acme", "--file", "acme.json", "--yes"]);
    let version = fleet.json(&node, &["quota", "get", "acme"])["version"].clone();
    assert_eq!(version, 11);
    assert_eq!(fleet.verified(), 11);
}

#[test]
fn slips_are_told() {
    let fleet = Fleet::sqlite();
    let node = fleet.node("a");
    let set = |args: &[&str]| fleet.tell(&node, &[&["quota", "set"], args].concat());
    let told = set(&["umbrella", "--plan", "pro"]);
    let new = "warning: umbrella is new, and has made no call so far\n";
    assert_contains(&told.err, new);
    let told = set(&["umbrela", "--plan", "pro"]);
    assert_contains(&told.err, "; did you mean umbrella?");
    // One who is known is not asked after again.
    let told = set(&["umbrela", "--plan", "free"]);
    assert_eq!((told.code, told.err.as_str()), (Some(0), ""));

    let told = set(&["umbrela", "--override", "endpoint:POST /order=5/day"]);
    assert_eq!(told.code, Some(0));
    let slip = "no rule has endpoint:POST /order: it limits this tenant alone, beside the rules; did you mean the value \
                `POST /orders`?";
    assert_contains(&told.err, slip);
    let told = set(&["umbrela", "--override", &format!("{ORDERS}=5/day")]);
    assert_eq!((told.code, told.err.as_str()), (Some(0), ""));

    let old = "2020-01-01T00:00:00Z";
    let told = set(&["umbrela", "--plan", "pro", "--expires-at", old]);
    assert_contains(&told.err, "2020-01-01T00:00:00Z is in the past");
    for flags in [["--expires-at", "yesterday"], ["--override", "default=5"]] {
        let told = set(&[&["umbrela", "--plan", "pro"], &flags[..]].concat());
        assert_eq!(told.code, Some(2), "{}", told.err);
        assert_contains(&told.err, flags[0]);
    }
    let told = set(&[
        "umbrela",
        "--plan",
        &format!("pro@2019-01-01T00:00:00Z..{old}"),
    ]);
    let ended = "warning: plan pro ended at 2020-01-01T00:00:00Z: it never holds\n";
    assert_contains(&told.err, ended);
}

#[test]
fn nothing_is_done_to_a_name_that_there_is_not_without_a_word() {
    let fleet = Fleet::sqlite();
    let node = fleet.node("a");
    let told = fleet.tell(&node, &["reset", "umbrela"]);
    assert_eq!(told.code, Some(0), "{}", told.err);
    assert_contains(
        &told.err,
        "did not have umbrela, and no limit of it was used",
    );
    node.check(&[("customer", "caller")]);
    let told = fleet.tell(&node, &["reset", "caller"]);
    assert_eq!((told.code, told.err.as_str()), (Some(0), ""));
    for command in ["list", "export"] {
        fleet
            .tell(&node, &["quota", command, "--domain", "typo"])
            .refused("?domain: there is no such domain");
        // One that has no tenants yet is none.
        fleet.done(&node, &["quota", command]);
    }
}

#[test]
fn one_who_has_called_is_no_slip() {
    let fleet = Fleet::sqlite();
    let node = fleet.node("a");
    node.check(&[("customer", "caller")]);
    // The last calls are written at the end.
    assert!(node.stop().success());
    let node = fleet.node("a");
    let told = fleet.tell(&node, &["quota", "set", "caller", "--plan", "pro"]);
    assert_eq!((told.code, told.err.as_str()), (Some(0), ""));
}

#[test]
fn a_file_goes_in_as_a_whole_or_not_at_all() {
    let fleet = Fleet::sqlite();
    let node = fleet.node("a");
    let file = |bad: Option<usize>| {
        let tier = |number| if Some(number) == bad { "gold" } else { "pro" };
        let lines = (0..652).map(|number| format!("t{number},{}\n", tier(number)));
        let text = "tenant,plan\n".to_owned() + &lines.collect::<String>();
        write(fleet.folder.path(), "tenants.csv", &text);
    };
    let import =
        |args: &[&str]| fleet.tell(&node, &[&["quota", "import", "tenants.csv"], args].concat());
    file(Some(600));
    for args in [&[][..], &["--in-parts"]] {
        let told = import(args);
        assert_eq!(told.code, Some(1));
        let place = "tenants.csv:602: ";
        assert!(told.err.contains(place), "{args:?}: {}", told.err);
        assert!(
            told.err.contains("; nothing was imported"),
            "{args:?}: {}",
            told.err
        );
        let list = fleet.json(&node, &["quota", "list"]);
        assert_eq!(list.as_array().map(Vec::len), Some(0), "{args:?}");
    }
    file(None);
    let told = import(&["--in-parts"]);
    assert_eq!(
        told.out, "652 tenants: 652 new, 0 changed, 0 as they were\n",
        "{}",
        told.err
    );
    let told = import(&[]);
    assert_eq!(
        told.out, "652 tenants: 0 new, 0 changed, 652 as they were\n",
        "{}",
        told.err
    );
}
