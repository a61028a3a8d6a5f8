//! Reading and changing tenants: the same on SQLite and on PostgreSQL.

use ratekeeper_quota::{
    ListCursor, ListFilter, Precondition, QuotaError, QuotaStore, TenantId, TenantPut,
};
use ratekeeper_rules::{Dated as _, RuleSet, TenantOverride, TenantPlan, TenantQuotas};

use crate::support::{Database, editor, key, on, orders, rules, run, store, tenant, term};

#[test]
fn sqlite_keeps_tenants() {
    run(suite(&Database::sqlite()));
}

#[test]
fn postgres_keeps_tenants() {
    run(suite(&Database::postgres()));
}

async fn suite(database: &Database) {
    puts_and_gets(&store(&database.fresh())).await;
    refuses_what_the_rules_do_not_have(&store(&database.fresh())).await;
    changes_only_what_is_as_expected(&store(&database.fresh())).await;
    deletes_and_resets(&store(&database.fresh())).await;
    lists(&store(&database.fresh())).await;
    keeps_to_one_key(database).await;
}

async fn put(quotas: &QuotaStore, id: &TenantId, of: &TenantQuotas, rules: &RuleSet) -> u64 {
    let put = TenantPut::now(id.clone(), of.clone());
    let written = quotas.put(&put, Precondition::Any, &editor(), rules).await;
    written.expect("it can be put").record.version
}

async fn puts_and_gets(quotas: &QuotaStore) {
    let (rules, acme) = (rules(), tenant("acme"));
    assert_eq!(quotas.get("d", acme.hash).await.expect("it answers"), None);
    let all = TenantQuotas {
        plans: vec![
            TenantPlan::new("pro").during(term(0, 500)),
            TenantPlan::new("enterprise").during(term(500, 900)),
        ],
        overrides: vec![
            orders(500),
            orders(900).during(term(700, 800)),
            TenantOverride {
                descriptor: ["a:b", "c: \"d\"; é"].into_iter().collect(),
                requests_per_unit: 100,
                window: Some("10s".into()),
                burst: Some(5),
                algorithm: Some("token_bucket".into()),
                unit: None,
                post_paid: Some(true),
                max_debt: Some(0),
                steps: Some(2),
                effective_at: None,
                expires_at: None,
            }
            .during(term(3, 4)),
            TenantOverride {
                requests_per_unit: (1 << 53) - 1,
                unit: Some("day".into()),
                ..TenantOverride::default()
            },
        ],
        epoch: 0,
    };
    let change = TenantPut::now(acme.clone(), all);
    let written = quotas
        .put(&change, Precondition::Any, &editor(), &rules)
        .await;
    let written = written.expect("it can be put");
    assert!(written.is_new && written.is_changed);
    assert_eq!((&written.record.id, written.record.version), (&acme, 1));
    let got = quotas.get("d", acme.hash).await.expect("it answers");
    assert_eq!(
        got,
        Some(written.record.clone()),
        "all that was put is there"
    );
    assert_eq!(written.record.quotas, change.quotas);

    // The same again writes nothing.
    let again = quotas
        .put(&change, Precondition::Any, &editor(), &rules)
        .await;
    let again = again.expect("it can be put");
    assert!(!again.is_new && !again.is_changed);
    assert_eq!(again.record, written.record);
    assert_eq!(quotas.version().await.expect("it answers"), 1);

    // Less takes the place of more.
    assert_eq!(put(quotas, &acme, &on("free"), &rules).await, 2);
    let got = quotas
        .get("d", acme.hash)
        .await
        .expect("it answers")
        .expect("it is there");
    assert_eq!(got.quotas, on("free"));
    assert_eq!(got.created_at, written.record.created_at);
    assert!(got.updated_at >= got.created_at);
}

async fn refuses_what_the_rules_do_not_have(quotas: &QuotaStore) {
    let (rules, acme) = (rules(), tenant("acme"));
    let with = |quota: TenantOverride| TenantQuotas {
        overrides: vec![orders(1), quota.during(term(1, 2))],
        ..TenantQuotas::default()
    };
    let other = |change: fn(&mut TenantOverride)| {
        let mut quota = orders(5);
        change(&mut quota);
        with(quota)
    };
    let wrong = [
        (on("gold"), "plans[0].plan"),
        (
            other(|quota| quota.unit = Some("fortnight".into())),
            "overrides[1].unit",
        ),
        (other(|quota| quota.unit = None), "overrides[1].unit"),
        (
            other(|quota| quota.window = Some("1s".into())),
            "overrides[1].window",
        ),
        (
            other(|quota| quota.algorithm = Some("magic".into())),
            "overrides[1].algorithm",
        ),
        (other(|quota| quota.burst = Some(5)), "overrides[1].burst"),
        (
            other(|quota| quota.requests_per_unit = u64::MAX),
            "overrides[1].requests_per_unit",
        ),
        (
            other(|quota| quota.descriptor = [":x"].into_iter().collect()),
            "overrides[1].descriptor",
        ),
        (
            TenantQuotas {
                overrides: vec![orders(1).during(term(2, 1))],
                ..TenantQuotas::default()
            },
            "overrides[0].expires_at",
        ),
        (
            TenantQuotas {
                overrides: vec![orders(1), orders(2).during(term(0, 9))],
                ..TenantQuotas::default()
            },
            "overrides[1].effective_at",
        ),
        (
            TenantQuotas {
                overrides: (1..=257)
                    .map(|at| orders(at).during(term(at, 999)))
                    .collect(),
                ..TenantQuotas::default()
            },
            "overrides",
        ),
    ];
    for (wrong, field) in wrong {
        let put = TenantPut::now(acme.clone(), wrong);
        let refused = quotas.put(&put, Precondition::Any, &editor(), &rules).await;
        match refused {
            Err(QuotaError::Invalid(mistake)) => assert_eq!(mistake.field(), field, "{mistake}"),
            other => panic!("{field}: {other:?}"),
        }
    }
    let elsewhere = TenantId::of_value("elsewhere", "acme", false, &key());
    let put = TenantPut::now(elsewhere, on("pro"));
    let refused = quotas.put(&put, Precondition::Any, &editor(), &rules).await;
    assert!(
        matches!(refused, Err(QuotaError::Invalid(ref mistake)) if mistake.field() == "domain")
    );
    assert_eq!(
        quotas.version().await.expect("it answers"),
        0,
        "nothing was written"
    );
}

async fn changes_only_what_is_as_expected(quotas: &QuotaStore) {
    let (rules, acme) = (rules(), tenant("acme"));
    let put = async |plan: &str, expected| {
        let put = TenantPut::now(acme.clone(), on(plan));
        let written = quotas.put(&put, expected, &editor(), &rules).await;
        written
            .map(|written| written.record.version)
            .map_err(|error| match error {
                QuotaError::Changed { current } => current,
                error => panic!("{error}"),
            })
    };
    assert_eq!(put("pro", Precondition::Version(1)).await, Err(None));
    assert_eq!(put("pro", Precondition::Absent).await, Ok(1));
    assert_eq!(put("free", Precondition::Absent).await, Err(Some(1)));
    assert_eq!(put("free", Precondition::Version(1)).await, Ok(2));
    assert_eq!(
        put("pro", Precondition::Version(1)).await,
        Err(Some(2)),
        "a late editor"
    );
    let deleted = quotas
        .delete("d", acme.hash, Precondition::Version(1), &editor())
        .await;
    assert!(matches!(
        deleted,
        Err(QuotaError::Changed { current: Some(2) })
    ));
}

async fn deletes_and_resets(quotas: &QuotaStore) {
    let (rules, acme) = (rules(), tenant("acme"));
    let gone = quotas
        .delete("d", acme.hash, Precondition::Any, &editor())
        .await;
    assert!(matches!(gone, Err(QuotaError::NotFound)));
    put(quotas, &acme, &on("pro"), &rules).await;
    let reset = quotas
        .reset(&acme, Precondition::Any, &editor())
        .await
        .expect("it can be reset");
    assert_eq!(
        (reset.quotas.epoch, &reset.quotas.plans),
        (1, &on("pro").plans)
    );
    let before = quotas
        .delete("d", acme.hash, Precondition::Any, &editor())
        .await;
    assert_eq!(
        before.expect("it was there").record.quotas.plans,
        on("pro").plans
    );
    assert_eq!(quotas.get("d", acme.hash).await.expect("it answers"), None);
    assert_eq!(quotas.count().await.expect("it answers"), 0);

    // Old usage stays forgotten.
    put(quotas, &acme, &on("free"), &rules).await;
    let again = quotas
        .get("d", acme.hash)
        .await
        .expect("it answers")
        .expect("it is back");
    assert_eq!(again.quotas.epoch, 1);

    // One that is put back by its hash has the name that it had.
    let gone = quotas
        .delete("d", acme.hash, Precondition::Any, &editor())
        .await;
    gone.expect("it was there");
    let by_hash = TenantId::of_hash("d", acme.hash);
    put(quotas, &by_hash, &on("free"), &rules).await;
    let back = quotas.get("d", acme.hash).await.expect("it answers");
    assert_eq!(back.expect("it is back").id.shown, "acme");

    // A tenant without quotas can be reset, and is not listed for it.
    let bob = tenant("bob");
    let reset = quotas
        .reset(&bob, Precondition::Any, &editor())
        .await
        .expect("it can be reset");
    assert_eq!(reset.quotas.epoch, 1);
    assert_eq!(quotas.count().await.expect("it answers"), 1);
    let reset = quotas
        .reset(&bob, Precondition::Any, &editor())
        .await
        .expect("it can be reset");
    assert_eq!(reset.quotas.epoch, 2);

    // So can one that is deleted: there is nothing that it had.
    let by = editor();
    let deleted = quotas.delete("d", acme.hash, Precondition::Any, &by);
    deleted.await.expect("it is there");
    let reset = quotas.reset(&acme, Precondition::Any, &editor()).await;
    let reset = reset.expect("it can be reset");
    assert_eq!(reset.created_at, reset.updated_at);
    let row = quotas
        .audit(reset.version - 1, 1)
        .await
        .expect("it answers");
    assert_eq!((&*row[0].action, &row[0].before), ("reset", &None));
}

async fn lists(quotas: &QuotaStore) {
    let rules = rules();
    for number in 0..25 {
        let plan = if number % 5 == 0 { "enterprise" } else { "pro" };
        let mut of = on(plan);
        if number % 2 == 0 {
            of.overrides.push(orders(number));
        }
        put(quotas, &tenant(&format!("tenant {number}")), &of, &rules).await;
    }
    let mut names = Vec::new();
    let mut cursor: Option<ListCursor> = None;
    loop {
        let page = quotas
            .list(&ListFilter::default(), cursor.as_ref(), 10)
            .await;
        let page = page.expect("it answers");
        names.extend(page.records.iter().map(|record| record.id.shown.clone()));
        let Some(next) = page.next else {
            break;
        };
        assert_eq!(page.records.len(), 10);
        cursor = Some(next.to_string().parse().expect("a cursor is a text"));
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 25, "each once");
    let count = async |filter: ListFilter| {
        let page = quotas.list(&filter, None, 500).await.expect("it answers");
        assert_eq!(page.next, None);
        page.records.len()
    };
    let of_plan = |plan: &str| ListFilter {
        plan: Some(plan.to_owned()),
        ..ListFilter::default()
    };
    assert_eq!(count(of_plan("enterprise")).await, 5);
    assert_eq!(count(of_plan("' OR 1=1 --")).await, 0);
    let with_overrides = |has| ListFilter {
        domain: Some("d".to_owned()),
        has_overrides: Some(has),
        ..ListFilter::default()
    };
    assert_eq!(count(with_overrides(true)).await, 13);
    assert_eq!(count(with_overrides(false)).await, 12);
    let elsewhere = ListFilter {
        domain: Some("elsewhere".to_owned()),
        ..ListFilter::default()
    };
    assert_eq!(count(elsewhere).await, 0);
    assert!("no cursor".parse::<ListCursor>().is_err());
}

async fn keeps_to_one_key(database: &Database) {
    let address = database.fresh();
    store(&address).prepare().await.expect("a new database");
    store(&address).prepare().await.expect("the same key again");
    let other = ratekeeper_rules::TenantKey::from_bytes([8; 16]);
    let other = QuotaStore::new(address, other).expect("the address is right");
    assert!(matches!(other.prepare().await, Err(QuotaError::OtherKey)));
}

#[test]
fn a_secret_shows_its_end_alone() {
    let shown = |value| TenantId::of_value("d", value, true, &key()).shown;
    assert_eq!(shown("0123456789abcdef"), "…cdef");
    assert_eq!(shown("01234567cdef"), "…cdef");
    assert_eq!(shown("short"), "…");
    assert_eq!(tenant("ac\nme").shown, "ac\u{fffd}me");
}
