//! Usage by minute: absolute numbers, so that writing them again does no harm.

use ratekeeper_quota::{UsageFilter, UsageRow};

use crate::support::{Database, run, store, tenant};

#[test]
fn sqlite_keeps_usage() {
    run(suite(&Database::sqlite()));
}

#[test]
fn postgres_keeps_usage() {
    run(suite(&Database::postgres()));
}

async fn suite(database: &Database) {
    let quotas = store(&database.fresh());
    let row = |minute, name: Option<&str>, node: &str, allowed| UsageRow {
        minute,
        domain: "d".to_owned(),
        tenant: name.map(|name| tenant(name).hash),
        rule: "d.customer".to_owned(),
        node: node.to_owned(),
        allowed,
        denied: 1,
    };
    // More than one statement takes.
    let many: Vec<_> = (0..1_200)
        .map(|number| row(number, Some("acme"), "a", 1))
        .collect();
    quotas.write_usage(&many).await.expect("it can be written");
    quotas
        .write_usage(&many)
        .await
        .expect("it can be written again");
    let others = [
        row(7, Some("acme"), "b", 5),
        row(7, Some("bob"), "a", 6),
        row(7, None, "a", 8),
    ];
    quotas
        .write_usage(&others)
        .await
        .expect("it can be written");
    quotas
        .write_usage(&[row(7, Some("acme"), "a", 3)])
        .await
        .expect("it can be written");

    let all = UsageFilter {
        from: 7,
        until: 8,
        ..UsageFilter::default()
    };
    let mut found = quotas.usage(&all, 100).await.expect("it answers");
    found.sort_by_key(|row| row.allowed);
    let expected = [row(7, Some("acme"), "a", 3)].into_iter().chain(others);
    assert_eq!(found, expected.collect::<Vec<_>>());
    let of_acme = UsageFilter {
        tenant: Some(("d".to_owned(), tenant("acme").hash)),
        from: 0,
        until: 10_000,
    };
    let found = quotas.usage(&of_acme, 10_000).await.expect("it answers");
    assert_eq!(found.len(), 1_201);
    assert_eq!(
        found.iter().map(|row| row.allowed).sum::<u64>(),
        1_200 + 2 + 5
    );
    assert_eq!(quotas.forget_usage(1_000).await.expect("it answers"), 1_003);
    assert_eq!(
        quotas
            .usage(&of_acme, 10_000)
            .await
            .expect("it answers")
            .len(),
        200
    );
}
