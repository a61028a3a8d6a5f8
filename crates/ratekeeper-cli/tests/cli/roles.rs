//! The role that each route of the admin API needs.

use crate::support::{Ratekeeper, http, run, serve};
use ratekeeper_testkit::http1::connect;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use tempfile::tempdir;

const RULES: &str = "domain: d
tenant: customer
plans: [free, pro]
descriptors:
- key: customer
  rate_limit: { window: 24h, limit: 10 }
  plans: { pro: { window: 24h, limit: 1000 } }
";

/// The roles, each of which may do all that those before it may.
const ROLES: [&str; 3] = ["viewer", "editor", "admin"];

/// Every route that needs a role, with the least role that may use it.
const ROUTES: [(&str, &str, &str); 33] = [
    ("GET", "/", "viewer"),
    ("GET", "/rlconfig", "viewer"),
    ("GET", "/admin/v1/rules", "viewer"),
    ("GET", "/admin/v1/reloads", "viewer"),
    ("GET", "/admin/v1/nodes", "viewer"),
    ("GET", "/admin/v1/shed", "viewer"),
    ("GET", "/admin/v1/explain", "viewer"),
    ("POST", "/admin/v1/explain", "viewer"),
    ("GET", "/admin/v1/usage/{tenant}", "viewer"),
    ("GET", "/admin/v1/top", "viewer"),
    ("GET", "/admin/v1/anomalies", "viewer"),
    ("GET", "/admin/v1/denials", "viewer"),
    ("POST", "/admin/v1/denials", "viewer"),
    ("GET", "/admin/v1/tenants/{tenant}", "viewer"),
    ("POST", "/admin/v1/tenants", "viewer"),
    ("GET", "/admin/v1/denials/log", "viewer"),
    ("GET", "/admin/v1/live", "viewer"),
    ("GET", "/admin/v1/openapi.json", "viewer"),
    ("GET", "/admin/v1/quotas", "viewer"),
    ("GET", "/admin/v1/quotas/{tenant}", "viewer"),
    ("POST", "/admin/v1/rules/{id}/enable", "editor"),
    ("POST", "/admin/v1/rules/{id}/disable", "editor"),
    ("POST", "/admin/v1/rules/{id}/shadow", "editor"),
    ("DELETE", "/admin/v1/rules/{id}/switch", "editor"),
    ("PUT", "/admin/v1/quotas/{tenant}", "editor"),
    ("DELETE", "/admin/v1/quotas/{tenant}", "editor"),
    ("POST", "/admin/v1/quotas/{tenant}/reset", "editor"),
    ("PUT", "/admin/v1/denials/log/{key}", "editor"),
    ("DELETE", "/admin/v1/denials/log/{key}", "editor"),
    ("GET", "/admin/v1/audit", "admin"),
    ("GET", "/admin/v1/export/quotas", "admin"),
    ("GET", "/admin/v1/export/usage", "admin"),
    ("POST", "/admin/v1/import/quotas", "admin"),
];

/// The tokens of the three roles, made in the data folder of a service.
fn tokens(folder: &Path) -> [String; 3] {
    ROLES.map(|role| {
        let create = format!("token create {role} --role {role} --data-dir data");
        run(folder, &create).succeeded().trim().to_owned()
    })
}

/// The status of an answer, whose body may have no end.
fn status(to: u16, method: &str, path: &str, token: Option<&str>) -> u16 {
    let mut stream = connect(to);
    let body = match path {
        path if path.starts_with("/admin/v1/denials/log/") => "{\"minutes\":1}",
        "/admin/v1/denials" | "/admin/v1/tenants" => "{\"tenant\":\"a\"}",
        path if path.ends_with("/import/quotas") => "{\"tenant\":\"b\",\"plan\":\"pro\"}",
        path if path.starts_with("/admin/v1/quotas/") => "{\"plan\":\"pro\"}",
        _ => {
            "{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{\"key\":\"customer\",\"value\":\"a\"}]}]}"
        }
    };
    let path = path
        .replace("{tenant}", "a")
        .replace("{tenant}", "a")
        .replace("{id}", "d.customer")
        .replace("{key}", "customer:a");
    let authorization = token.map_or_else(String::new, |token| {
        format!("Authorization: Bearer {token}\r\n")
    });
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         {authorization}Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut line = String::new();
    let read = BufReader::new(stream).read_line(&mut line);
    read.expect("it answers");
    let status = line
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    status.unwrap_or_else(|| panic!("{method} {path}: {line:?}"))
}

#[test]
fn each_route_of_the_admin_api_wants_its_role() {
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    let service = serve(folder).rules(RULES).args("--data-dir data").start();
    the_table_has_every_route(&service);
    let tokens = tokens(folder);
    let to = service.admin;

    // Those who may not, first: they change nothing.
    for (method, path, least) in ROUTES {
        assert_eq!(
            status(to, method, path, None),
            401,
            "{method} {path} by nobody"
        );
        for (role, token) in ROLES
            .iter()
            .zip(&tokens)
            .take_while(|(role, _)| **role != least)
        {
            let answer = status(to, method, path, Some(token));
            assert_eq!(answer, 403, "{method} {path} by {role}");
        }
    }
    let metrics = http(to, "GET", "/metrics", "").1;
    assert!(
        metrics.contains("ratelimit_quota_version 3\n"),
        "no change was made but the three tokens: {metrics}"
    );
    let off = "ratelimit_rules_switched{switch=\"disabled\"} 0\n";
    assert!(metrics.contains(off), "no rule was switched: {metrics}");

    for (method, path, least) in ROUTES {
        let may = ROLES
            .iter()
            .zip(&tokens)
            .skip_while(|(role, _)| **role != least);
        for (role, token) in may {
            let answer = status(to, method, path, Some(token));
            // The tenant may be gone by now.
            let is_served =
                matches!(answer, 200 | 204 | 404) || (answer == 400 && path.ends_with("/explain"));
            assert!(is_served, "{method} {path} by {role}: {answer}");
        }
    }
    // Probes need no role.
    for path in ["/livez", "/readyz", "/metrics", "/dashboard"] {
        let answer = status(to, "GET", path, None);
        assert!(!matches!(answer, 401 | 403), "{path}: {answer}");
    }
    assert!(service.stop().success());
}

/// The document is held to the router by a test of the server.
fn the_table_has_every_route(service: &Ratekeeper) {
    let (_, document) = http(service.admin, "GET", "/admin/v1/openapi.json", "");
    let document: Value = serde_json::from_str(&document).expect("it is JSON");
    let paths = document["paths"].as_object().expect("it has paths");
    let admin = paths.iter().filter(|(path, _)| path.starts_with("/admin/"));
    let described: BTreeSet<(String, String)> = admin
        .flat_map(|(path, item)| {
            let methods = item.as_object().expect("a path has methods").keys();
            methods.map(|method| (method.to_uppercase(), path.clone()))
        })
        .collect();
    let listed = ROUTES
        .iter()
        .filter(|(_, path, _)| path.starts_with("/admin/"));
    let listed: BTreeSet<_> = listed
        .map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned()))
        .collect();
    assert_eq!(
        described, listed,
        "say in ROUTES which role a new route needs"
    );
}
