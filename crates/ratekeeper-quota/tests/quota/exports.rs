//! One node at a time exports the audit trail, from where the one before stopped.

use std::time::Duration;

use ratekeeper_quota::{ExportClaim, QuotaStore};

use crate::support::{Database, run, store};

#[test]
fn sqlite_gives_a_target_to_one_node() {
    run(suite(&Database::sqlite()));
}

#[test]
fn postgres_gives_a_target_to_one_node() {
    run(suite(&Database::postgres()));
}

fn claim(target: &str, holder: &str, lease: Duration) -> ExportClaim {
    ExportClaim {
        target: target.to_owned(),
        holder: holder.to_owned(),
        lease,
    }
}

async fn suite(database: &Database) {
    let address = database.fresh();
    let (first, second) = (store(&address), store(&address));
    let long = Duration::from_secs(3_600);
    let [a, b] = ["a", "b"].map(|holder| claim("redis://one", holder, long));
    let claimed = async |quotas: &QuotaStore, claim: &ExportClaim| {
        quotas.claim_export(claim).await.expect("it answers")
    };
    assert_eq!(
        claimed(&first, &a).await,
        Some(0),
        "nothing was exported yet"
    );
    assert_eq!(claimed(&second, &b).await, None);
    assert_eq!(claimed(&first, &a).await, Some(0), "its holder keeps it");
    let other = claim("redis://two", "b", long);
    assert_eq!(
        claimed(&second, &other).await,
        Some(0),
        "another target is free"
    );

    let confirmed = async |quotas: &QuotaStore, claim: &ExportClaim, version| {
        let confirmed = quotas.confirm_export(claim, version).await;
        confirmed.expect("it answers")
    };
    assert!(confirmed(&first, &a, 5).await);
    assert!(!confirmed(&first, &a, 4).await, "it never goes back");
    assert!(
        !confirmed(&second, &b, 9).await,
        "who does not hold it moves nothing"
    );
    assert_eq!(claimed(&first, &a).await, Some(5));

    // Released, it goes to another node, and the first one cannot move it any more.
    second.release_export(&b).await.expect("it answers");
    assert_eq!(
        claimed(&second, &b).await,
        None,
        "only its holder releases it"
    );
    first.release_export(&a).await.expect("it answers");
    assert_eq!(claimed(&second, &b).await, Some(5));
    assert!(!confirmed(&first, &a, 6).await);

    // A node that is gone loses it when its time is up.
    let short = claim("redis://one", "b", Duration::ZERO);
    assert!(confirmed(&second, &short, 7).await);
    tokio::time::timeout(Duration::from_secs(60), async {
        // The clock of SQLite has milliseconds.
        while claimed(&first, &a).await != Some(7) {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the time is up at once");
}
