//! Many tenants in one transaction are as if each had been put alone.

use ratekeeper_core::Timestamp;
use ratekeeper_quota::{AuditVerdict, QuotaError, QuotaStore, TenantPut};
use ratekeeper_rules::{BadQuotas, Dated as _, QuotaList, TenantPlan, TenantQuotas};

use crate::support::{Database, editor, on, orders, rules, run, store, tenant, term};

#[test]
fn sqlite_takes_many() {
    run(suite(&Database::sqlite()));
}

#[test]
fn postgres_takes_many() {
    run(suite(&Database::postgres()));
}

/// In the list that is checked, the quotas that the tenant keeps until the change come first.
#[test]
fn a_mistake_has_its_place_in_what_was_sent() {
    const SOON: u64 = 4_000_000_000;
    const LATER: u64 = 4_100_000_000;
    let database = Database::sqlite();
    run(async {
        let quotas = store(&database.fresh());
        let dated = |plan, from| TenantPlan::new(plan).during(term(from, from + 10));
        let with = |plans| TenantQuotas {
            plans,
            ..TenantQuotas::default()
        };
        let has = with(vec![TenantPlan::new("free"), dated("pro", SOON)]);
        put_together(&quotas, &[TenantPut::now(tenant("acme"), has)]).await;
        let sent = [TenantPut {
            tenant: tenant("acme"),
            quotas: with(vec![dated("pro", LATER), dated("free", SOON)]),
            begins: Some(Timestamp::from_secs(LATER)),
            listed: None,
        }];
        for refused in [
            quotas.put_all(&sent, &editor(), &rules()).await.map(drop),
            quotas.check_all(&sent, &rules()).await,
        ] {
            let source = refused.expect_err("two begin at once").source;
            let QuotaError::Invalid(BadQuotas::BeginsTwice { list, at }) = source else {
                panic!("{source}")
            };
            assert_eq!((list, at), (QuotaList::Plans, 1));
        }
    });
}

async fn suite(database: &Database) {
    let together = store(&database.fresh());
    let alone = store(&database.fresh());
    for puts in [first(), second()] {
        put_together(&together, &puts).await;
        for put in &puts {
            put_together(&alone, std::slice::from_ref(put)).await;
        }
    }
    for number in (0..1_300).step_by(7) {
        let id = tenant(&format!("t{number}"));
        let of = async |quotas: &QuotaStore| {
            let found = quotas.get("d", id.hash).await.expect("it answers");
            found.map(|record| (record.version, record.quotas))
        };
        assert_eq!(of(&together).await, of(&alone).await, "tenant {number}");
    }
    let intact = async |quotas: &QuotaStore| match quotas.verify_audit(None).await {
        Ok(AuditVerdict::Intact { rows, .. }) => rows,
        verdict => panic!("the trail is not intact: {verdict:?}"),
    };
    let rows = intact(&together).await;
    assert_eq!(rows, intact(&alone).await);
    assert_eq!(
        rows,
        1_000 + 100 + 300 + 2,
        "what stays as it is leaves no row"
    );
}

/// A thousand new tenants.
fn first() -> Vec<TenantPut> {
    let quotas = |number| match number % 3 {
        0 => on("pro"),
        1 => TenantQuotas {
            overrides: vec![orders(number + 1)],
            ..on("enterprise")
        },
        _ => TenantQuotas::default(),
    };
    (0..1_000)
        .map(|number| put(number, quotas(number)))
        .collect()
}

/// Of these some are new, some change, some stay as they are, and two come again: next to each other, and far
/// apart.
fn second() -> Vec<TenantPut> {
    let mut puts = first();
    for (number, put) in (0..).zip(&mut puts).take(100) {
        put.quotas = match number % 2 {
            0 => on("free"),
            _ => TenantQuotas {
                overrides: vec![orders(5_000)],
                ..TenantQuotas::default()
            },
        };
    }
    puts.extend((1_000..1_300).map(|number| put(number, on("pro"))));
    puts.insert(5, put(4, on("pro")));
    puts.push(put(3, on("pro")));
    puts
}

fn put(number: u64, quotas: TenantQuotas) -> TenantPut {
    TenantPut::now(tenant(&format!("t{number}")), quotas)
}

async fn put_together(quotas: &QuotaStore, puts: &[TenantPut]) {
    let written = quotas.put_all(puts, &editor(), &rules()).await;
    let written = written.expect("they can be put");
    assert_eq!(written.len(), puts.len());
}
