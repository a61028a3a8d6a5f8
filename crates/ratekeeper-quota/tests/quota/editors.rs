//! Several editors at once, and a database that is killed while they write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ratekeeper_quota::{AuditVerdict, DatabaseAddress, Precondition, QuotaError, TenantPut};
use ratekeeper_rules::TenantQuotas;
use ratekeeper_testkit::postgres::Server;
use tokio::task::JoinSet;

use crate::support::{Database, editor, eventually, orders, rules, run, store, tenant};

#[test]
fn sqlite_takes_concurrent_editors() {
    run(concurrent_editors(&Database::sqlite()));
}

#[test]
fn postgres_takes_concurrent_editors() {
    run(concurrent_editors(&Database::postgres()));
}

/// Processes that find no tables make them at the same time, and each may be the second at any of them.
#[test]
fn sqlite_is_begun_by_many_at_once() {
    run(async {
        for _ in 0..12 {
            let database = Database::sqlite();
            let address = database.fresh();
            let mut stores = JoinSet::new();
            for _ in 0..16 {
                let address = address.clone();
                stores.spawn(async move { store(&address).prepare().await });
            }
            while let Some(ended) = stores.join_next().await {
                ended.expect("it ends").expect("the tables are there");
            }
        }
    });
}

/// Each editor raises a number by one, again and again. None of them loses another's change.
async fn concurrent_editors(database: &Database) {
    const EDITORS: u64 = 6;
    const CHANGES: u64 = 10;
    let address = database.fresh();
    let mut editors = JoinSet::new();
    for _ in 0..EDITORS {
        let address = address.clone();
        editors.spawn(async move {
            let (quotas, rules, acme) = (store(&address), rules(), tenant("acme"));
            let mut done = 0;
            while done < CHANGES {
                let before = quotas.get("d", acme.hash).await.expect("it answers");
                let (next, expected) = match before {
                    Some(record) => {
                        let known = &record.quotas.overrides[0];
                        (
                            known.requests_per_unit + 1,
                            Precondition::Version(record.version),
                        )
                    }
                    None => (1, Precondition::Absent),
                };
                let put = TenantPut::now(acme.clone(), with(next));
                let written = quotas.put(&put, expected, &editor(), &rules).await;
                match written {
                    Ok(_) => done += 1,
                    Err(QuotaError::Changed { .. }) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
        });
    }
    while let Some(ended) = editors.join_next().await {
        ended.expect("no editor fails");
    }
    let quotas = store(&address);
    let record = quotas
        .get("d", tenant("acme").hash)
        .await
        .expect("it answers");
    let record = record.expect("it is there");
    assert_eq!(record.quotas, with(EDITORS * CHANGES));
    assert_eq!(record.version, EDITORS * CHANGES, "no number is left out");
    let verdict = quotas.verify_audit(None).await.expect("it answers");
    assert!(matches!(verdict, AuditVerdict::Intact { rows, .. } if rows == record.version));
}

fn with(requests_per_unit: u64) -> TenantQuotas {
    TenantQuotas {
        overrides: vec![orders(requests_per_unit)],
        ..TenantQuotas::default()
    }
}

#[test]
fn nothing_is_half_written_when_postgres_is_killed() {
    let mut server = Server::start();
    let address: DatabaseAddress = server.url("postgres").parse().expect("it is an address");
    let stop = Arc::new(AtomicBool::new(false));
    let (writing, stopped, at) = (address.clone(), Arc::clone(&stop), address);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be made");
    let writer = runtime.spawn(async move {
        let (quotas, rules) = (store(&writing), rules());
        let (mut acknowledged, mut failures) = (0, 0);
        let mut next = 1;
        while !stopped.load(Ordering::Relaxed) {
            let (put, by) = (TenantPut::now(tenant("acme"), with(next)), editor());
            let put = quotas.put(&put, Precondition::Any, &by, &rules);
            match put.await {
                Ok(_) => {
                    acknowledged = next;
                    next += 1;
                }
                // It may have been written all the same: the same again does no harm.
                Err(error) => {
                    assert!(error.is_temporary(), "{error:?}");
                    failures += 1;
                }
            }
        }
        (acknowledged, failures)
    });
    runtime.block_on(async {
        let quotas = store(&at);
        for round in 1..=3_u64 {
            let version = async || quotas.version().await.unwrap_or(0);
            let start = version().await;
            eventually("it writes", async || version().await > start + 3).await;
            server.kill();
            let gone = quotas.version().await;
            assert!(gone.is_err(), "round {round}: {gone:?}");
            server.restart();
        }
        let start = quotas.version().await.expect("it is back");
        eventually("it writes again", async || {
            quotas.version().await.unwrap_or(0) > start
        })
        .await;
        stop.store(true, Ordering::Relaxed);
        let (acknowledged, failures) = writer.await.expect("the writer does not fail");
        assert!(failures > 0, "the server was killed while it wrote");
        let record = quotas
            .get("d", tenant("acme").hash)
            .await
            .expect("it answers");
        let record = record.expect("it is there");
        assert_eq!(
            record.quotas,
            with(acknowledged),
            "what was acknowledged is kept"
        );
        let verdict = quotas.verify_audit(None).await.expect("it answers");
        let version = quotas.version().await.expect("it answers");
        assert!(matches!(verdict, AuditVerdict::Intact { rows, .. } if rows == version));
        assert_eq!(record.version, version, "each number has its change");
    });
}
