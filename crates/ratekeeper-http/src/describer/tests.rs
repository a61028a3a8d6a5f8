use http::{HeaderMap, HeaderValue, Method, Uri};
use ratekeeper_rules::{Options, RuleSet, Source, load};
use serde_json::json;

use super::{Describer, UnclearDomain};
use crate::{Forwarding, Hop, Mapping, Original};

const LEVELS: &str = "slas_base: '/v1/organizations/{tenant}'
slas:
  - { id: get-product, methods: [GET], pathPattern: '/product/*', tiers: [ { period: 10, threshold: 1000 } ] }
";

fn rules(texts: &[&str]) -> RuleSet {
    let source = |(number, text): (usize, &&str)| Source {
        name: format!("{number}.yaml"),
        text: (*text).to_owned(),
    };
    let sources: Vec<_> = texts.iter().enumerate().map(source).collect();
    load(&sources, &Options::default())
        .expect("good rules")
        .rules
}

/// `domain: key=value,…` for each descriptor of `GET uri` with an API key.
fn asked(describer: &Describer, rules: &RuleSet, uri: &str) -> Vec<String> {
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", HeaderValue::from_static("k1"));
    let uri: Uri = uri.parse().expect("a URI");
    let hop = Hop::Address("203.0.113.7".parse().expect("an address"));
    let original = Original::received(
        hop,
        "http",
        &Method::GET,
        &uri,
        &headers,
        &Forwarding::default(),
    );
    let original = original.expect("a good request");
    let domain = describer.domain(None, rules).expect("one domain");
    let question = describer
        .question(&original, domain, rules)
        .expect("a good request");
    let entries = question.entries();
    let descriptors = question.descriptors(&entries);
    let shown = descriptors.iter().map(|descriptor| {
        let pairs = descriptor.entries.iter();
        let pairs: Vec<_> = pairs
            .map(|entry| format!("{}={}", entry.key, entry.value))
            .collect();
        format!(
            "{}: {}",
            descriptor.domain_in(question.domain()),
            pairs.join(",")
        )
    });
    shown.collect()
}

#[test]
fn a_service_level_adds_a_descriptor_of_its_own_domain() {
    let describer = Describer {
        mapping: serde_json::from_value::<Mapping>(json!({
            "descriptors": [[{ "key": "tenant", "from": "identity" }], [{ "key": "host", "from": "host" }]]
        }))
        .expect("a mapping"),
        ..Describer::default()
    };
    let both = rules(&["domain: shop\ndescriptors: []\n", LEVELS]);
    let uri = "http://Shop.example/v1/organizations/A/product/7";
    assert_eq!(
        asked(&describer, &both, uri),
        [
            "shop: tenant=k1",
            "shop: host=shop.example",
            "slas: tenant=A,sla=get-product,method=GET",
        ]
    );
    let alone = rules(&[LEVELS]);
    assert_eq!(
        asked(&describer, &alone, uri),
        ["slas: tenant=A,sla=get-product,method=GET"]
    );
    assert!(asked(&describer, &alone, "/v1/organizations/A/users").is_empty());
    let base_alone = LEVELS.replace("slas_base: '/v1/organizations/{tenant}'\n", "");
    assert_eq!(
        asked(&describer, &rules(&[&base_alone]), "/product/7"),
        ["slas: api_key=k1,sla=get-product,method=GET"]
    );
}

#[test]
fn the_domain_is_the_only_one_or_said() {
    let two = rules(&[
        "domain: a\ndescriptors: []\n",
        "domain: b\ndescriptors: []\n",
        LEVELS,
    ]);
    let one = rules(&["domain: a\ndescriptors: []\n", LEVELS]);
    let unsaid = Describer::default();
    assert_eq!(unsaid.domain(None, &one), Ok(Some("a")));
    assert_eq!(unsaid.domain(Some("x"), &one), Ok(Some("x")));
    assert_eq!(unsaid.domain(None, &two), Err(UnclearDomain::Several(2)));
    assert_eq!(unsaid.domain(None, &rules(&[LEVELS])), Ok(None));
    let said = Describer {
        domain: Some("b".into()),
        ..Describer::default()
    };
    assert_eq!(said.domain(None, &two), Ok(Some("b")));
    assert_eq!(
        said.domain(Some("a"), &two),
        Err(UnclearDomain::Contradicted)
    );
}
