//! The audit trail: complete, in order, and chained.

use ratekeeper_quota::{AuditVerdict, Precondition, QuotaStore, TenantPut};
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
        let (by, rules) = (editor(), rules());
        let put = TenantPut::now(acme.clone(), on(plan));
        let put = quotas.put(&put, Precondition::Any, &by, &rules);
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
    quotas.verify_audit(None).await.expect("it answers")
}

/// Each kind of tampering, and its reverse.
async fn notices_tampering(quotas: &QuotaStore, url: &str) {
    // As somebody would who has the database.
    let pool = sqlx::AnyPool::connect(url).await.expect("it answers");
    let tamper = async |statement: &str| {
        let done = sqlx::query(AssertSqlSafe(statement.to_owned()))
            .execute(&pool)
            .await;
        assert!(done.expect("it can be done").rows_affected() > 0);
    };
    let undone = async || {
        assert!(matches!(
            verdict(quotas).await,
            AuditVerdict::Intact { rows: 6, .. }
        ));
    };
    let to = |from: u64, to: u64| {
        format!("UPDATE quota_audit SET version = {to} WHERE version = {from}")
    };
    let edited = |by: &str| format!("UPDATE quota_audit SET editor = '{by}' WHERE version = 3");
    let deleted = |version: u64| format!("DELETE FROM quota_audit WHERE version = {version}");
    let swapped = vec![to(3, 40), to(4, 3), to(40, 4)];
    for (what, tampering, reverse, expected) in [
        (
            "changed",
            vec![edited("mallory")],
            vec![edited("alice")],
            AuditVerdict::Altered { version: 3 },
        ),
        (
            "removed at the end",
            vec![to(6, 60)],
            vec![to(60, 6)],
            AuditVerdict::Missing { version: 6 },
        ),
        (
            "swapped",
            swapped.clone(),
            swapped,
            AuditVerdict::Altered { version: 3 },
        ),
        (
            "put in after the last",
            vec![copy_of_first(7)],
            vec![deleted(7)],
            AuditVerdict::Altered { version: 7 },
        ),
        (
            "put in before the first",
            vec![copy_of_first(0)],
            vec![deleted(0)],
            AuditVerdict::Altered { version: 0 },
        ),
    ] {
        for statement in tampering {
            tamper(&statement).await;
        }
        assert_eq!(verdict(quotas).await, expected, "{what}");
        for statement in reverse {
            tamper(&statement).await;
        }
        undone().await;
    }
    notices_a_trail_that_was_cut(quotas, tamper).await;
    tamper("DELETE FROM quota_audit WHERE version = 2").await;
    assert_eq!(verdict(quotas).await, AuditVerdict::Missing { version: 2 });
}

/// A trail that ends earlier, with all that the database says of its end, is told by a head from before.
async fn notices_a_trail_that_was_cut(quotas: &QuotaStore, tamper: impl AsyncFn(&str)) {
    let rows = quotas.audit(0, 100).await.expect("it answers");
    let [.., before, last] = rows.as_slice() else {
        panic!("there are rows");
    };
    let verified = async |head: &str| quotas.verify_audit(Some(head)).await.expect("it answers");
    for row in &rows {
        let verdict = verified(&row.hash).await;
        assert!(matches!(verdict, AuditVerdict::Intact { rows: 6, .. }));
    }
    tamper("DELETE FROM quota_audit WHERE version = 6").await;
    let (cut, hash) = (before.version, &before.hash);
    let rewritten = format!("UPDATE quota_version SET version = {cut}, audit_hash = '{hash}'");
    tamper(&rewritten).await;
    let verdict = verdict(quotas).await;
    assert!(
        matches!(verdict, AuditVerdict::Intact { rows: 5, .. }),
        "by itself it is a whole trail: {verdict:?}"
    );
    assert_eq!(verified(&last.hash).await, AuditVerdict::OtherTrail);
}

/// A statement that puts in a row like the first.
fn copy_of_first(version: u64) -> String {
    format!(
        "INSERT INTO quota_audit (version, changed_at, editor, source, request_id, action, domain, subject, \
         state_before, state_after, hash) SELECT {version}, changed_at, editor, source, request_id, action, domain, \
         subject, state_before, state_after, hash FROM quota_audit WHERE version = 1"
    )
}
