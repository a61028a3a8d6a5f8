//! Tenants have their plans in a program that embeds the limiter, as they have at the service and at the gateway.

use ratekeeper::{Check, MemoryLimiter, Timestamp};

/// The list is that of the gateway's test.
const RULES: &str = "domain: api
tenant: api_key
plans: [free, pro]
descriptors:
- key: api_key
  rate_limit: { window: 10000d, limit: 10 }
  plans: { pro: { window: 10000d, limit: 1000 } }
tenants:
- { tenant: is-pro, plan: pro }
- { tenant: has-own, plan: pro, overrides: [ { window: 10000d, limit: 500 } ] }
- { tenant: was-pro, plan: pro, expires_at: 2020-01-01T00:00:00Z }
- { tenant: will-be-pro, plan: pro, effective_at: 2250-01-01T00:00:00Z }
";

/// The limit that a tenant has at a time.
fn limit(limiter: &MemoryLimiter, tenant: &str, now: Timestamp) -> u64 {
    let check = Check::new("api").descriptor([("api_key", tenant)]);
    let decision = limiter.check_at(&check, now);
    let binding = decision.binding().expect("a limit answers");
    binding.quota
}

#[test]
fn a_list_gives_tenants_their_limits_to_the_second() {
    let limiter = ratekeeper::from_yaml(RULES).expect("the rules are right");
    // The beginnings of 2020 and of 2250.
    let (end, start) = (1_577_836_800, 8_835_955_200);
    let now = Timestamp::from_secs(1_800_000_000);
    for (tenant, expected) in [
        ("is-pro", 1_000),
        ("has-own", 500),
        ("was-pro", 10),
        ("will-be-pro", 10),
        ("nobody", 10),
    ] {
        assert_eq!(limit(&limiter, tenant, now), expected, "{tenant}");
    }
    let micros = |secs: u64| Timestamp::from_secs(secs).as_micros();
    for (tenant, at, expected) in [
        ("was-pro", micros(end) - 1, 1_000),
        ("was-pro", micros(end), 10),
        ("will-be-pro", micros(start) - 1, 10),
        ("will-be-pro", micros(start), 1_000),
    ] {
        let limit = limit(&limiter, tenant, Timestamp::from_micros(at));
        assert_eq!(limit, expected, "{tenant} at {at}");
    }
}
