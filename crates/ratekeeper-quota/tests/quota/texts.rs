//! Texts that are long, or that databases and files could take for something else: the same on SQLite and on PostgreSQL.

use ratekeeper_quota::{
    BulkFormat, BulkTenant, ListCursor, ListFilter, Precondition, QuotaDocument, QuotaError,
    QuotaStore, TenantPut, UsageFilter, UsageRow, bulk_head, read_tenants,
};
use ratekeeper_rules::{TenantOverride, TenantQuotas};
use ratekeeper_testkit::random::Random;

use crate::support::{Database, editor, key, on, orders, rules, run, store, tenant};

#[test]
fn sqlite_takes_any_text() {
    run(suite(&Database::sqlite()));
}

#[test]
fn postgres_takes_any_text() {
    run(suite(&Database::postgres()));
}

async fn suite(database: &Database) {
    bounds_descriptors(&store(&database.fresh())).await;
    counts_calls_of_rules_with_long_ids(&store(&database.fresh())).await;
    finds_nothing_by_names_with_zeros(&store(&database.fresh())).await;
    exports_what_it_imports(&store(&database.fresh())).await;
}

/// A text that no index can compress.
fn noise(seed: usize, length: usize) -> String {
    let mut random = Random::new(seed as u64);
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut letter = || char::from(letters[usize::try_from(random.below(64)).unwrap_or(0)]);
    (0..length).map(|_| letter()).collect()
}

/// A descriptor is part of a key, and the indexes of PostgreSQL take less than three kilobytes.
async fn bounds_descriptors(quotas: &QuotaStore) {
    let (rules, acme) = (rules(), tenant("acme"));
    let of = |entries: usize| {
        let entry = |number: usize| format!("k{number:02}:{}", noise(number, 252));
        let quota = TenantOverride {
            descriptor: (0..entries).map(entry).collect(),
            requests_per_unit: 5,
            unit: Some("minute".into()),
            ..TenantOverride::default()
        };
        TenantQuotas {
            overrides: vec![quota],
            ..TenantQuotas::default()
        }
    };
    let longest = TenantPut::now(acme.clone(), of(4));
    let written = quotas
        .put(&longest, Precondition::Any, &editor(), &rules)
        .await;
    written.expect("it can be put");
    let got = quotas.get("d", acme.hash).await.expect("it answers");
    assert_eq!(got.map(|record| record.quotas), Some(longest.quotas));
    for entries in [5, 64] {
        let put = TenantPut::now(acme.clone(), of(entries));
        let refused = quotas.put(&put, Precondition::Any, &editor(), &rules).await;
        let Err(QuotaError::Invalid(bad)) = refused else {
            panic!("{entries} long entries: {refused:?}");
        };
        assert_eq!(bad.field(), "overrides[0].descriptor");
    }
}

/// The ids of rules have no bound, and the calls of all tenants are written together.
async fn counts_calls_of_rules_with_long_ids(quotas: &QuotaStore) {
    let acme = tenant("acme");
    let row = |rule: String, allowed| UsageRow {
        minute: 1,
        domain: "d".to_owned(),
        tenant: Some(acme.hash),
        rule,
        node: "n".to_owned(),
        allowed,
        denied: 0,
    };
    for allowed in [1, 3] {
        let rows = [row(noise(7, 20_000), allowed), row("short".to_owned(), 2)];
        let written = quotas.write_usage(&rows).await;
        written.expect("it can be written");
    }
    let filter = UsageFilter {
        tenant: None,
        from: 0,
        until: 2,
    };
    let kept = quotas.usage(&filter, 10).await.expect("it answers");
    let allowed: Vec<_> = kept.iter().map(|row| row.allowed).collect();
    assert_eq!(allowed.iter().sum::<u64>(), 5, "{allowed:?}");
    let long = kept.iter().find(|row| row.allowed == 3);
    let long = long.expect("the second number took the place of the first");
    assert!(long.rule.len() <= 1_024 && long.rule.starts_with(&noise(7, 900)));
    let (rule, by) = (noise(7, 20_000), editor());
    let switched = quotas.record("rule.switch", "", &rule, (None, None), &by);
    switched.await.expect("it can be recorded");
}

/// PostgreSQL refuses texts with zeros.
async fn finds_nothing_by_names_with_zeros(quotas: &QuotaStore) {
    for filter in [
        ListFilter {
            domain: Some("d\0".to_owned()),
            ..ListFilter::default()
        },
        ListFilter {
            plan: Some("\0".to_owned()),
            ..ListFilter::default()
        },
    ] {
        let page = quotas.list(&filter, None, 10).await.expect("it answers");
        assert_eq!((page.records.len(), page.next), (0, None));
    }
    let forged = format!("{}.\0", tenant("acme").hash);
    assert!(forged.parse::<ListCursor>().is_err());
}

/// A file has every tenant and descriptor by its name, however odd.
async fn exports_what_it_imports(quotas: &QuotaStore) {
    let (rules, key, by) = (rules(), key(), editor());
    let names = [
        "acme",
        " acme",
        "acme ",
        "=cmd|'/c calc'!A1",
        "@SUM(A1)",
        "-1",
        "'=1",
        "'tis",
        "a,\"b\"",
        "a\u{2028}b",
        "\u{feff}acme",
        "ünïcode",
        "a\tb",
        "hash:acme",
    ];
    let descriptors: [&[&str]; 5] = [
        &[],
        &["default"],
        &["[a]:b"],
        &["endpoint:POST /x "],
        &["=a: b", "c:d"],
    ];
    for name in names {
        let own = |descriptor: &&[&str]| {
            let is_budget = descriptor.len() == 1;
            TenantOverride {
                descriptor: descriptor.iter().copied().collect(),
                algorithm: is_budget.then(|| "gcra".into()),
                post_paid: (!descriptor.is_empty()).then_some(is_budget),
                max_debt: is_budget.then_some(40),
                ..orders(9)
            }
        };
        let overrides = descriptors.iter().map(own);
        let of = TenantQuotas {
            overrides: overrides.collect(),
            ..on("pro")
        };
        let put = TenantPut::now(tenant(name), of);
        let put = quotas.put(&put, Precondition::Any, &by, &rules);
        put.await.expect("it can be put");
    }
    let all = quotas.list(&ListFilter::default(), None, 100).await;
    let all = all.expect("it answers").records;
    assert_eq!(all.len(), names.len());
    for format in [BulkFormat::Csv, BulkFormat::JsonLines] {
        let lines = all
            .iter()
            .map(|record| BulkTenant::of(record, &key).written(format));
        let text = bulk_head(format).to_owned() + &lines.collect::<String>();
        let read = read_tenants(format, &text).expect("it is what was written");
        assert_eq!(read.len(), all.len(), "{text}");
        for (line, record) in read.iter().zip(&all) {
            let put = line.put(&rules, &key).expect("it can be put");
            assert_eq!(put.tenant.hash, record.id.hash, "{:?}", record.id);
            assert_eq!(put.quotas, record.quotas, "{:?}", record.id);
        }
        if format == BulkFormat::Csv {
            let mut cells = csv::ReaderBuilder::new();
            let mut cells = cells.has_headers(false).from_reader(text.as_bytes());
            for cell in cells.records().flat_map(|line| {
                let line = line.expect("it is CSV");
                line.iter().map(str::to_owned).collect::<Vec<_>>()
            }) {
                assert!(!cell.starts_with(['=', '+', '-', '@', '\t']), "{cell:?}");
            }
        }
    }
}

#[test]
fn a_plan_is_also_called_plan() {
    let read = |text: &str| serde_json::from_str::<QuotaDocument>(text);
    let told = read(r#"{"tier": "pro"}"#).unwrap();
    assert_eq!(read(r#"{"plan": "pro"}"#).unwrap(), told);
    assert_eq!(serde_json::to_string(&told).unwrap(), r#"{"plan":"pro"}"#);
    let several = read(r#"{"tiers": [{"tier": "pro"}]}"#).unwrap();
    assert_eq!(read(r#"{"plans": [{"plan": "pro"}]}"#).unwrap(), several);
    assert!(read(r#"{"plan": "pro", "tier": "pro"}"#).is_err());

    let tenants = |format, text| {
        let lines = read_tenants(format, text).unwrap();
        lines
            .into_iter()
            .map(|line| line.tenant)
            .collect::<Vec<_>>()
    };
    let csv = tenants(BulkFormat::Csv, "api_key,tier\nacme,pro\n");
    assert_eq!(tenants(BulkFormat::Csv, "api_key,plan\nacme,pro\n"), csv);
    let json = tenants(
        BulkFormat::JsonLines,
        r#"{"api_key": "acme", "tiers": [{"tier": "pro"}]}"#,
    );
    let named = r#"{"api_key": "acme", "plans": [{"plan": "pro"}]}"#;
    assert_eq!(tenants(BulkFormat::JsonLines, named), json);
    assert_eq!(json, csv);
}

/// An override has the keys that it has in rules.
#[test]
fn a_limit_is_also_called_limit() {
    let read = |text: &str| serde_json::from_str::<QuotaDocument>(text);
    let told = read(r#"{"overrides": [{"requests_per_unit": 5, "unit": "minute"}]}"#).unwrap();
    let named = r#"{"overrides": [{"limit": 5, "unit": "minute"}]}"#;
    assert_eq!(read(named).unwrap(), told);
    assert!(
        serde_json::to_string(&told)
            .unwrap()
            .contains("requests_per_unit")
    );
    assert!(read(r#"{"overrides": [{"limit": 5, "requests_per_unit": 5}]}"#).is_err());
    let csv = |text| read_tenants(BulkFormat::Csv, text).unwrap();
    assert_eq!(
        csv("api_key,limit,window\nacme,5,10s\n"),
        csv("api_key,requests_per_unit,window\nacme,5,10s\n")
    );
}
