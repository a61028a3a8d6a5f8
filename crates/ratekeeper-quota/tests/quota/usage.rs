//! Usage by minute, and calls by day and month: absolute numbers, so that writing them again does no harm.

use ratekeeper_quota::{
    CallCursor, CallLine, CallRow, CallerRow, Precondition, TenantId, TenantPut, UsageFilter,
    UsagePeriod, UsageRow,
};

use crate::support::{Database, editor, on, rules, run, store, tenant};

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

#[test]
fn sqlite_adds_calls_up() {
    run(calls(&Database::sqlite()));
}

#[test]
fn postgres_adds_calls_up() {
    run(calls(&Database::postgres()));
}

/// The first hour of a day, the 31st of January 2027.
const JANUARY_31: u64 = 500_376;

async fn calls(database: &Database) {
    let quotas = store(&database.fresh());
    let row = |hour, name: Option<&str>, node: &str, allowed| CallRow {
        hour: JANUARY_31 + hour,
        domain: "d".to_owned(),
        tenant: name.map(|name| tenant(name).hash),
        node: node.to_owned(),
        allowed,
        denied: 1,
    };
    let caller = |name: &str, shown: &str, hour| CallerRow {
        domain: "d".to_owned(),
        tenant: tenant(name).hash,
        shown: shown.to_owned(),
        hour,
    };
    let write = async |calls: &[CallRow], named: CallerRow| {
        let written = quotas.write_calls(calls, &[named]).await;
        written.expect("they can be written");
    };
    // More than one statement takes; the 31st of January, and the first days of February.
    let many: Vec<_> = (0..60)
        .map(|hour| row(hour, Some("acme"), "a", 1))
        .collect();
    let more: Vec<_> = (0..700)
        .map(|number| row(5, Some(&format!("t{number}")), "a", 2))
        .collect();
    let others = [row(23, Some("acme"), "b", 100), row(24, None, "a", 7)];
    for _ in 0..2 {
        // Absolute numbers: again does no harm.
        write(&many, caller("acme", "acme", 2)).await;
    }
    write(&more, caller("t0", "a\0b", 5)).await;
    write(&others, caller("acme", "an older name", 1)).await;

    let all = UsageFilter {
        until: u64::MAX,
        ..UsageFilter::default()
    };
    let by_day = |cursor: Option<CallCursor>, most| {
        let (quotas, all) = (&quotas, &all);
        async move {
            let page = quotas.calls_by(all, UsagePeriod::Day, cursor.as_ref(), most);
            page.await.expect("it answers")
        }
    };
    let page = by_day(None, 10_000).await;
    let of_acme = |lines: &[CallLine]| -> Vec<(String, Option<String>, u64, u64)> {
        let hash = tenant("acme").hash.to_string();
        let lines = lines.iter().filter(|line| line.hash == hash);
        let told = lines.map(|it| (it.period.clone(), it.tenant.clone(), it.allowed, it.denied));
        told.collect()
    };
    let acme = Some("acme".to_owned());
    let expected = [
        ("2027-01-31".to_owned(), acme.clone(), 124, 25),
        ("2027-02-01".to_owned(), acme.clone(), 24, 24),
        ("2027-02-02".to_owned(), acme.clone(), 12, 12),
    ];
    assert_eq!(of_acme(&page.lines), expected);
    let t0 = page
        .lines
        .iter()
        .find(|line| line.tenant.as_deref() == Some("a\u{fffd}b"));
    assert!(t0.is_some(), "no control characters");
    let together = page.lines.iter().find(|line| line.hash == "other");
    assert_eq!(together.map(|line| line.allowed), Some(7));
    assert_eq!(page.lines.len(), 701 + 2 + 1);
    assert!(page.next.is_none());

    // Page by page it is the same.
    for most in [1, 7, 700, 701] {
        let (mut lines, mut cursor) = (Vec::new(), None);
        loop {
            let page = by_day(cursor, most).await;
            assert!(page.lines.len() as u64 <= most);
            lines.extend(page.lines);
            let Some(next) = page.next else {
                break;
            };
            // As a client keeps it.
            cursor = Some(next.to_string().parse().expect("it is a cursor"));
        }
        assert!(lines == page.lines, "pages of {most} are not the same");
    }

    // By month, and of one tenant and a part of the time.
    let february = UsageFilter {
        tenant: Some(("d".to_owned(), tenant("acme").hash)),
        from: (JANUARY_31 + 20) * 60,
        until: (JANUARY_31 + 26) * 60,
    };
    let page = quotas
        .calls_by(&february, UsagePeriod::Month, None, 10)
        .await;
    let expected = [
        ("2027-01".to_owned(), acme.clone(), 104, 5),
        ("2027-02".to_owned(), acme.clone(), 2, 2),
    ];
    assert_eq!(of_acme(&page.expect("it answers").lines), expected);

    // A name that the table of tenants has goes before.
    let (by, rules) = (editor(), rules());
    let named = TenantId {
        shown: "ACME Inc".to_owned(),
        ..tenant("acme")
    };
    let put = TenantPut::now(named, on("pro"));
    let put = quotas.put(&put, Precondition::Any, &by, &rules);
    put.await.expect("it can be put");
    let page = by_day(None, 10_000).await;
    assert!(
        of_acme(&page.lines)
            .iter()
            .all(|it| it.1.as_deref() == Some("ACME Inc"))
    );
    let forgotten = (JANUARY_31 + 24) * 60;
    quotas.forget_usage(forgotten).await.expect("it answers");
    let page = by_day(None, 10_000).await;
    assert_eq!(page.lines.len(), 3, "two of acme, one of all others");
}
