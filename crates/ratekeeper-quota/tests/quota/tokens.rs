//! Tokens of a node's file, put into the database of all nodes.

use ratekeeper_quota::{AuditFilter, FleetToken, NodeTokens, RevokedToken, TOKENS_MAX};

use crate::support::{Database, editor, run, store};

fn token(number: usize) -> FleetToken {
    FleetToken {
        name: format!("t{number}").into(),
        role: "viewer".into(),
        sha256: format!("{number:064x}").into(),
        created_at: 0,
    }
}

#[test]
fn an_import_tells_whom_it_leaves_out_and_whom_it_revokes() {
    run(async {
        let database = Database::sqlite();
        let quotas = store(&database.fresh());
        let known = token(TOKENS_MAX);
        quotas
            .create_token(&known, &editor())
            .await
            .expect("it is made");
        let unknown = token(TOKENS_MAX + 1);
        let revoked = [known, unknown].map(|it| RevokedToken {
            name: it.name,
            sha256: it.sha256,
        });
        let of_node = NodeTokens {
            tokens: (0..TOKENS_MAX).map(token).chain([token(5_000)]).collect(),
            revoked: revoked.into(),
            required: true,
        };
        let imported = quotas.import_tokens(&of_node, &editor()).await;
        let imported = imported.expect("it is added");
        // The one that is revoked makes room.
        assert_eq!(imported.added, TOKENS_MAX);
        assert_eq!(imported.left_out, [Box::from("t5000")]);
        let newest = AuditFilter {
            newest_first: true,
            ..AuditFilter::default()
        };
        let rows = quotas.audit_of(&newest, 1).await.expect("it can be read");
        let after: serde_json::Value =
            serde_json::from_str(rows[0].after.as_deref().unwrap_or_default()).expect("it is JSON");
        assert_eq!(after["left_out"][0]["name"], "t5000");
        assert_eq!(
            after["revoked"].as_array().map(Vec::len),
            Some(1),
            "{}",
            after["revoked"]
        );
        assert_eq!(after["revoked"][0]["name"], "t1000");
    });
}
