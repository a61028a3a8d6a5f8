//! A database that an earlier version of the tables has filled is used as it is.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use ratekeeper_quota::{AuditVerdict, DatabaseAddress, Precondition, TenantPut};
use ratekeeper_rules::TenantQuotas;
use ratekeeper_testkit::postgres::Server;
use serde_json::json;
use sha2::{Digest, Sha256};
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AnyPool, AssertSqlSafe, SqlSafeStr};

use crate::support::{Database, editor, eventually, key, on, orders, rules, run, store, tenant};

/// The tables' versions, as the crate embeds them.
const VERSIONS: [(&str, &str); 7] = [
    ("tenants", include_str!("../../migrations/0001_tenants.sql")),
    (
        "adjustment",
        include_str!("../../migrations/0002_adjustment.sql"),
    ),
    (
        "audit_export",
        include_str!("../../migrations/0003_audit_export.sql"),
    ),
    (
        "database_id",
        include_str!("../../migrations/0004_database_id.sql"),
    ),
    ("budgets", include_str!("../../migrations/0005_budgets.sql")),
    ("fleet", include_str!("../../migrations/0006_fleet.sql")),
    ("calls", include_str!("../../migrations/0007_calls.sql")),
];

#[test]
fn every_version_is_tried() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations");
    let files = std::fs::read_dir(folder).expect("the folder is there");
    assert_eq!(files.count(), VERSIONS.len());
}

#[test]
fn sqlite_is_migrated_from_every_version() {
    run(suite(&Database::sqlite()));
}

#[test]
fn postgres_is_migrated_from_every_version() {
    run(suite(&Database::postgres()));
}

async fn suite(database: &Database) {
    for last in 1..=VERSIONS.len() {
        let url = database.fresh_url();
        fill(&url, last).await;
        uses_what_is_there(&url.parse().expect("it is an address")).await;
    }
}

#[test]
fn tables_of_a_later_version_are_refused_and_left_as_they_are() {
    for database in [Database::sqlite(), Database::postgres()] {
        let url = database.fresh_url();
        run(async {
            fill(&url, VERSIONS.len()).await;
            let later = VERSIONS.len() + 1;
            let pool = AnyPool::connect(&url).await.expect("it answers");
            let applied = "SELECT CAST(COUNT(*) AS BIGINT) FROM _sqlx_migrations";
            let add = format!(
                "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                 SELECT {later}, 'later', success, checksum, 0 FROM _sqlx_migrations WHERE version = 1"
            );
            let add = sqlx::query(sqlx::AssertSqlSafe(add));
            add.execute(&pool).await.expect("it is added");
            let quotas = store(&url.parse().expect("it is an address"));
            let refused = quotas.prepare().await.expect_err("it is refused");
            let knows = format!(
                "the quota database is of format {later}, and this version of Ratekeeper knows format {}: a later version wrote it",
                VERSIONS.len()
            );
            assert!(refused.to_string().starts_with(&knows), "{refused}");
            // No node keeps another from hearing so, or from bringing the tables up to date.
            let beside = store(&url.parse().expect("it is an address"));
            let refused = beside.prepare().await.expect_err("it is refused");
            assert!(refused.to_string().starts_with(&knows), "{refused}");
            drop(quotas);
            let left: i64 = sqlx::query_scalar(applied)
                .fetch_one(&pool)
                .await
                .expect("it answers");
            assert_eq!(left, i64::try_from(later).expect("few"));
        });
    }
}

#[test]
fn tables_are_made_though_nobody_waits_for_them() {
    for database in [Database::sqlite(), Database::postgres()] {
        run(async {
            let url = database.fresh_url();
            fill(&url, 1).await;
            let quotas = store(&url.parse().expect("it is an address"));
            // Begun, and given up at once, as by a node that serves from its saved copy meanwhile.
            let mut begun = Box::pin(quotas.prepare());
            let polled = poll_fn(|context| Poll::Ready(begun.as_mut().poll(context)));
            assert!(polled.await.is_pending());
            drop(begun);
            let pool = AnyPool::connect(&url).await.expect("it answers");
            eventually("the tables are made", async || {
                let applied = sqlx::query_scalar("SELECT MAX(version) FROM _sqlx_migrations");
                let applied: i64 = applied.fetch_one(&pool).await.unwrap_or_default();
                usize::try_from(applied) == Ok(VERSIONS.len())
            })
            .await;
            quotas.prepare().await.expect("it can be used");
        });
    }
}

#[test]
fn a_migration_takes_the_time_that_it_needs() {
    let server = Server::start();
    let url = server.create("quotas");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime can be made").block_on(async {
        fill(&url, 1).await;
        let pool = AnyPool::connect(&url).await.expect("it answers");
        let mut holder = pool.begin().await.expect("it begins");
        let locked = sqlx::query("LOCK TABLE quota_audit")
            .execute(&mut *holder)
            .await;
        locked.expect("it can be locked");
        let quotas = store(&url.parse().expect("it is an address"));
        let command = tokio::spawn(async move { quotas.migrate().await });
        eventually("the migration waits", async || {
            let waiting = sqlx::query_scalar("SELECT COUNT(*) FROM pg_locks WHERE NOT granted");
            let waiting: i64 = waiting.fetch_one(&pool).await.expect("it answers");
            waiting > 0
        })
        .await;
        // An hour passes, for our clock alone.
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(3_600)).await;
        tokio::task::yield_now().await;
        assert!(!command.is_finished(), "it has given up");
        tokio::time::resume();
        holder.rollback().await.expect("it lets go");
        let done = command.await.expect("it does not panic");
        done.expect("the tables are made");
    });
}

#[test]
fn a_user_who_may_not_create_tables_uses_those_that_are_there() {
    let server = Server::start();
    let url = server.create("quotas");
    run(async {
        let owner = store(&url.parse().expect("it is an address"));
        owner.prepare().await.expect("the owner makes the tables");
        for statement in [
            "CREATE ROLE app LOGIN",
            "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO app",
        ] {
            let _ = server.run("quotas", statement);
        }
        let url = url.replace("postgres@", "app@");
        let quotas = store(&url.parse().expect("it is an address"));
        let (by, rules) = (editor(), rules());
        let put = TenantPut::now(tenant("acme"), on("pro"));
        let put = quotas.put(&put, Precondition::Absent, &by, &rules);
        assert_eq!(put.await.expect("it can be put").record.version, 1);

        // Where tables are missing, the reason is told.
        let url = server.create("empty").replace("postgres@", "app@");
        let empty = store(&url.parse().expect("it is an address"));
        let refused = empty.prepare().await.expect_err("it may not make them");
        let why = std::error::Error::source(&refused).map(ToString::to_string);
        assert!(
            why.as_ref()
                .is_some_and(|why| why.contains("permission denied")),
            "{refused:?}"
        );
    });
}

/// Makes the tables up to version `last`, and fills them as that version did.
async fn fill(url: &str, last: usize) {
    sqlx::any::install_default_drivers();
    let url = match url.starts_with("sqlite") {
        true => format!("{url}?mode=rwc"),
        false => url.to_owned(),
    };
    let pool = AnyPool::connect(&url).await.expect("it answers");
    let versions = (1_i64..).zip(VERSIONS).take(last);
    let migrations = versions.map(|(version, (name, sql))| {
        let sql = sql.into_sql_str();
        Migration::new(version, name.into(), MigrationType::Simple, sql, false)
    });
    let migrator = Migrator::with_migrations(migrations.collect());
    migrator.run(&pool).await.expect("the tables are made");
    let acme = tenant("acme").hash;
    // The fields in their order, after the hash of the row before.
    let fields = json!([
        "",
        1,
        1_700_000_000_000_000_u64,
        "alice",
        "127.0.0.1",
        "r-1",
        "put",
        "d",
        acme.to_string(),
        null,
        "{}"
    ]);
    let digest = Sha256::digest(fields.to_string().as_bytes());
    let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let of_key = key().hash("\0ratekeeper: is this the key?");
    for statement in [
        format!(
            "UPDATE quota_version SET version = 1, audit_hash = '{hash}', tenant_key = '{of_key}'"
        ),
        format!(
            "INSERT INTO tenant VALUES ('d', '{acme}', 'acme', 2, 1, 1700000000000000, 1700000000000000, NULL)"
        ),
        format!("INSERT INTO tenant_plan VALUES ('d', '{acme}', 'pro', 0, NULL)"),
        format!(
            "INSERT INTO quota_override (domain, api_key, descriptor, requests_per_unit, unit, effective_at, position) \
             VALUES ('d', '{acme}', '[\"endpoint:POST /orders\"]', 500, 'minute', 0, 0)"
        ),
        format!(
            "INSERT INTO quota_audit VALUES (1, 1700000000000000, 'alice', '127.0.0.1', 'r-1', 'put', 'd', '{acme}', \
             NULL, '{{}}', '{hash}')"
        ),
        format!(
            "INSERT INTO quota_usage VALUES (28333333, 'd', '{acme}', 'd.customer@pro', 'n', 7, 2)"
        ),
    ] {
        let done = sqlx::query(AssertSqlSafe(statement.clone()))
            .execute(&pool)
            .await;
        done.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    pool.close().await;
}

async fn uses_what_is_there(address: &DatabaseAddress) {
    let quotas = store(address);
    let acme = tenant("acme");
    let record = quotas.get("d", acme.hash).await.expect("it answers");
    let record = record.expect("the tenant is there");
    let expected = TenantQuotas {
        overrides: vec![orders(500)],
        epoch: 2,
        ..on("pro")
    };
    assert_eq!((record.quotas, record.version), (expected, 1));
    let (by, rules) = (editor(), rules());
    let put = TenantPut::now(acme, on("enterprise"));
    let put = quotas.put(&put, Precondition::Version(1), &by, &rules);
    assert_eq!(put.await.expect("it can be put").record.version, 2);
    let verdict = quotas.verify_audit(None).await.expect("it answers");
    assert!(
        matches!(verdict, AuditVerdict::Intact { rows: 2, .. }),
        "{verdict:?}"
    );
    let usage = quotas.usage_page(
        &ratekeeper_quota::UsageFilter {
            tenant: None,
            from: 0,
            until: u64::MAX,
        },
        None,
        10,
    );
    let usage = usage.await.expect("it answers");
    assert_eq!((usage.lines[0].allowed, usage.lines[0].denied), (7, 2));
}
