//! The audit trail: complete, in order, and chained.

use ratekeeper_quota::{AuditVerdict, Precondition, QuotaStore};
use sqlx::AssertSqlSafe;

use crate::support::{Database, editor, on, rules, run, store, tenant};

#[test]
fn sqlite_keeps_the_trail() {
    run(suite(&Database::sqlite()));
}

#[test]
fn postgres_keeps_the_trail() {
    run(suite(&Database::postgres()));
}

async fn suite(database: &Database) {
    let url = database.fresh_url();
    let quotas = store(&url.parse().expect("it is an address"));
    assert!(matches!(
        verdict(&quotas).await,
        AuditVerdict::Intact { rows: 0, .. }
    ));
    let acme = tenant("acme");
    for plan in ["free", "pro", "pro", "enterprise"] {
        let (of, by, rules) = (on(plan), editor(), rules());
        let put = quotas.put(&acme, &of, Precondition::Any, &by, &rules);
        put.await.expect("it can be put");
    }
    quotas
        .reset(&acme, Precondition::Any, &editor())
        .await
        .expect("it can be reset");
    let gone = quotas
        .delete("d", acme.hash, Precondition::Any, &editor())
        .await;
    gone.expect("it was there");
    let switched = serde_json::json!({ "enabled": false });
    let version = quotas
        .record(
            "switch",
            "d",
            "d.customer",
            (None, Some(switched)),
            &editor(),
        )
        .await;
    assert_eq!(version.expect("it can be recorded"), 6);

    let rows = quotas.audit(0, 100).await.expect("it answers");
    let told: Vec<_> = rows.iter().map(|row| (row.version, &*row.action)).collect();
    let expected = ["put", "put", "put", "reset", "delete", "switch"];
    let expected: Vec<_> = (1..).zip(expected).collect();
    assert_eq!(told, expected, "the same again left no trace");
    assert!(rows.iter().all(|row| row.editor == editor()));
    let pro = &rows[1];
    assert_eq!(pro.subject, acme.hash.to_string());
    let (before, after) = (pro.before.as_deref(), pro.after.as_deref());
    assert!(
        before.is_some_and(|before| before.contains("\"free\"")),
        "{before:?}"
    );
    assert!(
        after.is_some_and(|after| after.contains("\"pro\"")),
        "{after:?}"
    );
    assert_eq!(rows[4].after, None);
    assert_eq!(
        quotas.audit(4, 1).await.expect("it answers"),
        [rows[4].clone()]
    );
    assert!(matches!(
        verdict(&quotas).await,
        AuditVerdict::Intact { rows: 6, .. }
    ));
    notices_tampering(&quotas, &url).await;
}

async fn verdict(quotas: &QuotaStore) -> AuditVerdict {
    quotas.verify_audit().await.expect("it answers")
}

async fn notices_tampering(quotas: &QuotaStore, url: &str) {
    let tamper = async |statement: &'static str| {
        // As somebody would who has the database.
        let pool = sqlx::AnyPool::connect(url).await.expect("it answers");
        let done = sqlx::query(AssertSqlSafe(statement)).execute(&pool).await;
        assert_eq!(done.expect("it can be done").rows_affected(), 1);
        pool.close().await;
    };
    tamper("UPDATE quota_audit SET editor = 'mallory' WHERE version = 3").await;
    assert_eq!(verdict(quotas).await, AuditVerdict::Altered { version: 3 });
    tamper("UPDATE quota_audit SET editor = 'alice' WHERE version = 3").await;
    assert!(matches!(verdict(quotas).await, AuditVerdict::Intact { .. }));
    tamper("UPDATE quota_audit SET version = 60 WHERE version = 6").await;
    assert_eq!(
        verdict(quotas).await,
        AuditVerdict::Missing { version: 6 },
        "cut off at the end"
    );
    tamper("UPDATE quota_audit SET version = 6 WHERE version = 60").await;
    tamper("DELETE FROM quota_audit WHERE version = 2").await;
    assert_eq!(verdict(quotas).await, AuditVerdict::Missing { version: 2 });
}
