//! Tokens of the admin API that count on every node of a quota database.

use crate::fleet::{Database, Fleet, KEY, RULES, on_each_database};
use crate::support::{Ratekeeper, Said, ratekeeper, run, said, serve};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::http1;
use ratekeeper_testkit::keep_alive::HttpConnection;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::ratekeeper::Args;
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A token that was never made.
const WRONG: &str = "rk_admin_0000000000000000000000000000000000000000000000000000000000000000";

/// Starts a node under its own name.
fn node(fleet: &Fleet, name: &str) -> Ratekeeper {
    fleet.node_with(name, &["--node-name", name])
}

/// The status and the problem of the list of rules, asked for with a token.
fn ask(service: &Ratekeeper, token: &str) -> (u16, String) {
    let header = match token {
        "" => String::new(),
        token => format!("Authorization: Bearer {token}\r\n"),
    };
    let answer = HttpConnection::open(service.admin).ask("GET", "/admin/v1/rules", &header, "");
    let problem: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let detail = problem["detail"].as_str().unwrap_or_default();
    (answer.status, detail.to_owned())
}

fn status(service: &Ratekeeper, token: &str) -> u16 {
    ask(service, token).0
}

/// Waits until change number `version` of tokens is in force. A token that is tried earlier would be a wrong guess.
fn wait_for_version(service: &Ratekeeper, version: u64) {
    let line = format!("\nratelimit_admin_tokens_version {version}\n");
    let is_told = || service.metrics().contains(&line);
    eventually("the node knows of the change", is_told);
}

/// Runs `ratekeeper token` with the database of the fleet.
fn token(fleet: &Fleet, args: &[&str]) -> Said {
    let url = fleet.database.url();
    let args = [&["token"], args, &["--quotas", &url]].concat();
    let mut command = ratekeeper(fleet.folder.path(), &args);
    let output = command.env("RATEKEEPER_TENANT_KEY", KEY).output();
    said(output.expect("the binary starts"))
}

fn created(fleet: &Fleet, name: &str, role: &str) -> String {
    let made = token(fleet, &["create", name, "--role", role]);
    assert_eq!(made.code, Some(0), "{}", made.err);
    made.out.trim().to_owned()
}

fn revoked(fleet: &Fleet, name: &str) -> Value {
    let revoked = token(fleet, &["revoke", name, "--json"]);
    assert_eq!(revoked.code, Some(0), "{}{}", revoked.out, revoked.err);
    serde_json::from_str(&revoked.out).expect("it is JSON")
}

fn names(nodes: &Value) -> Vec<&str> {
    let nodes = nodes.as_array().expect("it is a list").iter();
    let mut names: Vec<_> = nodes.filter_map(|node| node["node"].as_str()).collect();
    names.sort_unstable();
    names
}

fn data(fleet: &Fleet, node: &str) -> PathBuf {
    fleet.folder.path().join(node).join("data")
}

on_each_database!(tokens_count_on_every_node);

fn tokens_count_on_every_node(fleet: &Fleet) {
    let (a, b) = (node(fleet, "a"), node(fleet, "b"));
    assert_eq!(status(&a, ""), 200, "this host may, for now");
    let made = token(fleet, &["create", "ann", "--role", "editor"]);
    assert_contains(&made.err, "counts on every node that uses");
    assert_contains(&made.err, "access without a token ends now");
    let ann = made.out.trim();
    let bob = created(fleet, "bob", "viewer");
    for node in [&a, &b] {
        wait_for_version(node, 2);
        assert_eq!(["", ann, &bob].map(|it| status(node, it)), [401, 200, 200]);
        let (refused, why) = ask(node, WRONG);
        assert_eq!(refused, 401);
        assert!(why.starts_with("no such token: it was revoked"), "{why}");
    }
    let taken = token(fleet, &["create", "ann", "--role", "viewer"]);
    assert_contains(&taken.err, "there is a token for \"ann\" already");

    // Once the command has ended, both refuse it: nothing is waited for here.
    let told = revoked(fleet, "ann");
    assert_eq!(names(&told["confirmed"]), ["a", "b"], "{told}");
    for part in ["unconfirmed", "away"] {
        assert_eq!(names(&told[part]), [""; 0], "{told}");
    }
    assert_eq!((status(&a, ann), status(&b, ann)), (401, 401));
    assert_eq!((status(&a, &bob), status(&b, &bob)), (200, 200));
    let again = token(fleet, &["revoke", "ann"]);
    assert_eq!(again.code, Some(1));
    assert_contains(&again.err, "there is no token for \"ann\"");
    let listed = token(fleet, &["list"]).out;
    assert!(
        listed.contains("every node") && !listed.contains("ann"),
        "{listed}"
    );

    // The last token does not open the door.
    let told = revoked(fleet, "bob");
    assert_eq!(names(&told["confirmed"]), ["a", "b"], "{told}");
    assert_eq!((status(&a, ""), status(&b, "")), (401, 401));
    // A row of the audit trail for each change.
    assert_eq!(fleet.verified(), 4);
}

/// `token list` shows it beside those of all nodes.
#[test]
fn a_token_of_one_node_is_not_said_to_be_unknown() {
    let fleet = Fleet::sqlite();
    let _a = node(&fleet, "a");
    let folder = data(&fleet, "a").display().to_string();
    let told = |args: &[&str]| token(&fleet, &[args, &["--data-dir", &folder]].concat());
    let made = told(&["create", "ann", "--role", "admin", "--local"]);
    assert_eq!(made.code, Some(0), "{}", made.err);
    assert_contains(&told(&["list"]).out, "ann");
    let refused = told(&["revoke", "ann"]);
    assert_eq!(refused.code, Some(1));
    assert_contains(&refused.err, "use --local");
    let unknown = told(&["revoke", "bob"]);
    assert!(!unknown.err.contains("--local"), "{}", unknown.err);
    let revoked = told(&["revoke", "ann", "--local"]);
    assert_eq!(revoked.code, Some(0), "{}", revoked.err);
}

/// The nodes may take seconds, and the token cannot be shown again.
#[test]
fn a_token_is_shown_before_the_nodes_are_waited_for() {
    let fleet = Fleet::sqlite();
    let mut a = node(&fleet, "a");
    let _first = created(&fleet, "ann", "admin");
    wait_for_version(&a, 1);
    a.process.pause();
    let url = fleet.database.url();
    let args = [
        "token", "create", "bob", "--role", "viewer", "--quotas", &url,
    ];
    let mut command = ratekeeper(fleet.folder.path(), &args);
    command.env("RATEKEEPER_TENANT_KEY", KEY);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut create = command.spawn().expect("the binary starts");
    let mut lines = BufReader::new(create.stdout.take().expect("a pipe")).lines();
    let secret = lines.next().expect("a line").expect("it can be read");
    create.kill().expect("it is there");
    let rest = create.wait_with_output().expect("it ends");
    // It names the nodes that it has waited for in vain.
    assert_eq!(String::from_utf8_lossy(&rest.stderr), "");
    a.process.resume();
    wait_for_version(&a, 2);
    assert_eq!(status(&a, &secret), 200);
}

/// Revocations that are timed.
const TIMED: u64 = 20;

/// Run with `--ignored --nocapture`; docs/measurements.md has the numbers.
#[test]
#[ignore = "measures how long it takes, and prints it"]
fn postgres_revocations_are_timed() {
    revocations_are_timed("PostgreSQL, which notifies", &Fleet::postgres());
}

#[test]
#[ignore = "measures how long it takes, and prints it"]
fn sqlite_revocations_are_timed() {
    revocations_are_timed("SQLite, which is polled", &Fleet::sqlite());
}

/// Times from the start of `token revoke` until each of three nodes has it in force, which the nodes' metrics tell.
fn revocations_are_timed(of: &str, fleet: &Fleet) {
    let nodes = ["a", "b", "c"].map(|name| node(fleet, name));
    let mut times = Vec::new();
    for round in 0..TIMED {
        let name = format!("token-{round}");
        let made = created(fleet, &name, "viewer");
        for node in &nodes {
            wait_for_version(node, 2 * round + 1);
            assert_eq!(status(node, &made), 200);
        }
        let begun = Instant::now();
        let in_force = |node: &Ratekeeper| {
            wait_for_version(node, 2 * round + 2);
            begun.elapsed()
        };
        let told = std::thread::scope(|scope| {
            let waiting = nodes.each_ref().map(|it| scope.spawn(|| in_force(it)));
            let told = revoked(fleet, &name);
            times.extend(waiting.map(|it| it.join().expect("the node has it in force")));
            told
        });
        assert_eq!(names(&told["confirmed"]), ["a", "b", "c"], "{told}");
        for node in &nodes {
            assert_eq!(status(node, &made), 401);
        }
    }
    times.sort_unstable();
    let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{of}: in force on a node after {median:.2?} (median), {longest:.2?} at most");
}

#[test]
fn nodes_tell_what_is_in_force_on_each() {
    let fleet = Fleet::sqlite();
    let (a, b) = (node(&fleet, "a"), node(&fleet, "b"));
    let ann = created(&fleet, "ann", "viewer");
    let list = || -> Value {
        let header = format!("Authorization: Bearer {ann}\r\n");
        let answer = HttpConnection::open(a.admin).ask("GET", "/admin/v1/nodes", &header, "");
        serde_json::from_str(&answer.body).expect("it is JSON")
    };
    eventually("both nodes report the token", || {
        let nodes = list();
        let known = nodes["nodes"].as_array().map_or(0, |nodes| {
            let knows = |node: &&Value| node["tokens_revision"] == 1 && node["state"] == "live";
            nodes.iter().filter(knows).count()
        });
        known == 2
    });
    let nodes = list();
    assert_eq!(names(&nodes["nodes"]), ["a", "b"], "{nodes}");
    let [first, second] = [&nodes["nodes"][0], &nodes["nodes"][1]];
    assert_eq!(first["rules_revision"], second["rules_revision"]);
    assert_eq!(first["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(second["admin"], format!("127.0.0.1:{}", b.admin));
    assert_eq!(
        (&first["is_self"], &second["is_self"]),
        (&true.into(), &false.into())
    );

    // By the command, which has no token yet.
    let admin = format!("http://127.0.0.1:{}", a.admin);
    let args = ["nodes", "--admin", &admin];
    let refused = run(fleet.folder.path(), &args);
    assert_contains(&refused.err, "say who you are");
    let mut command = ratekeeper(fleet.folder.path(), &args);
    let told = said(
        command
            .env("RATEKEEPER_ADMIN_TOKEN", &ann)
            .output()
            .expect("it starts"),
    );
    assert!(
        told.out.contains("TOKENS") && told.out.contains(env!("CARGO_PKG_VERSION")),
        "{}",
        told.out
    );

    // A node that stops takes its leave, and no command waits for it.
    let before = first["rules_revision"].clone();
    assert!(b.stop().success());
    assert_eq!(names(&list()["nodes"]), ["a"]);
    // One that comes back with other rules is told apart.
    let other = RULES.replace("limit: 1000", "limit: 1001");
    let fleet = fleet.with_rules(other.leak());
    let _b = node(&fleet, "b");
    eventually("the node reports other rules", || {
        let nodes = list();
        let second = &nodes["nodes"][1]["rules_revision"];
        second.is_string() && *second != before
    });
}

on_each_database!(copies_decide_while_the_database_is_away);

fn copies_decide_while_the_database_is_away(fleet: &mut Fleet) {
    let a = node(fleet, "a");
    let ann = created(fleet, "ann", "admin");
    let copy = data(fleet, "a").join("fleet.saved.json");
    eventually("the node has saved its copy", || {
        fs::read_to_string(&copy).is_ok_and(|text| text.contains("\"ann\""))
    });
    let text = fs::read_to_string(&copy).expect("it is there");
    assert!(
        !text.contains(&ann["rk_admin_".len()..]),
        "only the hash is kept"
    );
    assert!(a.stop().success());
    fleet.database.leave();

    let a = node(fleet, "a");
    assert_eq!(
        (status(&a, &ann), status(&a, WRONG), status(&a, "")),
        (200, 401, 401)
    );
    assert!(a.stop().success());

    // Neither the database nor the copy: only a token of this node alone is admitted.
    for gone in [true, false] {
        match gone {
            true => fs::remove_file(&copy).expect("it is there"),
            false => fs::write(&copy, "{").expect("it can be written"),
        }
        let a = node(fleet, "a");
        let (refused, why) = ask(&a, &ann);
        assert_eq!(refused, 401);
        assert!(why.starts_with("this token cannot be checked"), "{why}");
        assert_eq!(status(&a, ""), 401);
        let name = format!("break-glass-{gone}");
        let folder = data(fleet, "a").display().to_string();
        let local = format!("token create {name} --role admin --local --data-dir {folder}");
        let local = local.words();
        let made = run(fleet.folder.path(), &local);
        assert_contains(&made.err, "alone, whatever the quota database says");
        assert_eq!(status(&a, made.out.trim()), 200);
        let asked = Instant::now();
        assert!(a.stop().success());
        // Neither of two last writes waits for a server that has not been there for long; a file may be back at once.
        let (took, is_server) = (
            asked.elapsed(),
            matches!(fleet.database, Database::Postgres(..)),
        );
        assert!(!is_server || took < Duration::from_secs(5), "{took:?}");
    }

    fleet.database.come_back();
    let a = node(fleet, "a");
    wait_for_version(&a, 1);
    assert_eq!(status(&a, &ann), 200);
    assert_eq!((status(&a, WRONG), status(&a, "")), (401, 401));
}

#[test]
fn a_node_that_knows_nothing_yet_is_closed() {
    let mut fleet = Fleet::postgres();
    // It is made, and has not been used yet.
    fleet.database.leave();
    let a = node(&fleet, "a");
    assert_eq!((status(&a, ""), status(&a, WRONG)), (401, 401));
    fleet.database.come_back();
    eventually("the database has no token, so this host may", || {
        status(&a, "") == 200
    });
}

on_each_database!(files_of_nodes_are_joined);

/// A command about the tokens of one data folder.
fn of_folder(folder: &Path, args: &[&str]) -> String {
    let data = folder.display().to_string();
    let args = [&["token"], args, &["--data-dir", &data]].concat();
    let said = run(folder.parent().expect("it has one"), &args).succeeded();
    said.trim().to_owned()
}

fn files_of_nodes_are_joined(fleet: &Fleet) {
    let folders = ["a", "b"].map(|name| data(fleet, name));
    for folder in &folders {
        fs::create_dir_all(folder).expect("folders can be made");
    }
    let make = |folder: &Path, name: &str| of_folder(folder, &["create", name, "--role", "viewer"]);
    // Carl's token is on both nodes, and was revoked on the second.
    let carl = make(&folders[0], "carl");
    fs::copy(
        folders[0].join("tokens.json"),
        folders[1].join("tokens.json"),
    )
    .expect("a copy");
    of_folder(&folders[1], &["revoke", "carl"]);
    let (ann, bob) = (make(&folders[0], "ann"), make(&folders[1], "bob"));

    let a = node(fleet, "a");
    assert_eq!(
        [&ann, &carl, &bob].map(|it| status(&a, it)),
        [200, 200, 401]
    );
    let b = node(fleet, "b");
    assert_eq!(
        [&ann, &carl, &bob].map(|it| status(&b, it)),
        [200, 401, 200]
    );
    wait_for_version(&a, 2);
    assert_eq!(
        [&ann, &carl, &bob].map(|it| status(&a, it)),
        [200, 401, 200]
    );
    assert_eq!((status(&a, ""), status(&b, "")), (401, 401));
    assert!(
        !folders[0].join("tokens.json").exists(),
        "it is imported once"
    );
    assert!(a.stop().success());
    assert!(b.stop().success());

    // The file of a third node, which starts later, does not bring Carl back either.
    let third = data(fleet, "c");
    fs::create_dir_all(&third).expect("folders can be made");
    fs::copy(
        folders[0].join("tokens.json.imported"),
        third.join("tokens.json"),
    )
    .expect("a copy");
    let c = node(fleet, "c");
    assert_eq!(
        [&ann, &carl, &bob].map(|it| status(&c, it)),
        [200, 401, 200]
    );

    // Whoever names the folder alone is told where its tokens are.
    let folder = third.display().to_string();
    let args = format!("token create eve --role viewer --data-dir {folder}");
    let args = args.words();
    run(fleet.folder.path(), &args).refused("has its tokens in");
}

#[test]
fn tokens_stay_with_a_node_that_leaves_its_database() {
    let fleet = Fleet::sqlite();
    let a = node(&fleet, "a");
    let ann = created(&fleet, "ann", "viewer");
    let bob = created(&fleet, "bob", "viewer");
    let copy = data(&fleet, "a").join("fleet.saved.json");
    eventually("the node has saved its copy", || {
        fs::read_to_string(&copy).is_ok_and(|text| text.contains("\"bob\""))
    });
    assert!(a.stop().success());
    let a = fleet.node_at("off", "a", &[]);
    assert_eq!([&ann, &bob, ""].map(|it| status(&a, it)), [200, 200, 401]);
    let told = of_folder(&data(&fleet, "a"), &["revoke", "bob"]);
    assert_contains(&told, "without a quota database tokens are by node");
    assert_eq!([&ann, &bob].map(|it| status(&a, it)), [200, 401]);
    assert!(a.stop().success());
    // Back with the database, the revocation goes with it.
    let a = node(&fleet, "a");
    assert_eq!([&ann, &bob].map(|it| status(&a, it)), [200, 401]);
}

#[test]
fn top_tells_a_node_that_refuses_from_one_that_is_away() {
    let fleet = Fleet::sqlite();
    let open = node(&fleet, "a");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let setup = serve(folder.path()).rules(RULES);
    let closed = setup.args("--data-dir data --quotas off").start();
    of_folder(
        &folder.path().join("data"),
        &["create", "ann", "--role", "viewer"],
    );
    let gone = node(&fleet, "b");
    let nodes = [&open, &closed, &gone].map(|node| format!("http://127.0.0.1:{}", node.admin));
    assert!(gone.stop().success());
    let args = [
        "top", "--once", "--admin", &nodes[0], "--admin", &nodes[1], "--admin", &nodes[2],
    ];
    let told = run(folder.path(), &args);
    assert_eq!(told.code, Some(1));
    let states = "1 away, 1 refused, 1 serving";
    assert_contains(&told.out, states);
    assert_contains(&told.out, "401: say who you are");
}

#[test]
fn a_stream_ends_with_its_token() {
    let fleet = Fleet::sqlite();
    let a = node(&fleet, "a");
    let ann = created(&fleet, "ann", "viewer");
    let mut stream = http1::connect(a.admin);
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a timeout can be set");
    let request = format!(
        "GET /admin/v1/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {ann}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut lines = BufReader::new(stream).lines();
    let is_state =
        |line: std::io::Result<String>| line.expect("it goes on").starts_with("event: state");
    assert!(lines.any(is_state), "it streams");
    revoked(&fleet, "ann");
    // Otherwise it would go on for ever.
    let rest: Vec<_> = lines.map(|line| line.expect("it ends")).collect();
    assert!(
        !rest.iter().any(|line| line == "event: end"),
        "the node goes on"
    );
    assert_eq!(status(&a, &ann), 401);
}
