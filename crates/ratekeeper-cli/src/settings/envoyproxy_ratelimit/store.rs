//! The store as one URL, put together from envoyproxy/ratelimit's separate variables.

use super::super::environment::Environment;
use super::super::layer::Layers;
use super::super::problem::Problem;
use super::super::table::row;
use super::super::values::percent_encoded;
use super::{is_true, put_text};

/// The kinds of Redis that envoyproxy/ratelimit supports.
enum Kind {
    Single,
    Sentinel,
    Cluster,
}

/// Puts together `store` from envoyproxy/ratelimit's variables, and the files beside it.
pub(super) fn put(environment: &Environment, layers: &mut Layers, problems: &mut Vec<Problem>) {
    let with_tls = is_true(environment, "REDIS_TLS", problems);
    let Some(at) = environment.get("REDIS_URL") else {
        return;
    };
    if with_tls || at.starts_with("rediss") {
        for (name, setting) in [
            ("REDIS_TLS_CACERT", &row::store_ca),
            ("REDIS_TLS_CLIENT_CERT", &row::store_cert),
            ("REDIS_TLS_CLIENT_KEY", &row::store_key),
        ] {
            if let Some(path) = environment.get(name) {
                put_text(layers, setting, name, path);
            }
        }
    }
    let made = kind(environment).and_then(|kind| match at.split_once("://") {
        Some((scheme, _)) => {
            refuse_ignored(environment, scheme, with_tls, problems);
            Ok(at.to_owned())
        }
        None => url(environment, &kind, at, with_tls),
    });
    match made {
        Ok(url) => put_text(layers, &row::store, "REDIS_URL", url),
        Err(problem) => problems.push(problem),
    }
}

/// Refuses variables that say more than a whole URL of that `scheme`, which is taken as it is, or something else.
fn refuse_ignored(
    environment: &Environment,
    scheme: &str,
    with_tls: bool,
    problems: &mut Vec<Problem>,
) {
    let (family, kind) = scheme.split_once('+').unwrap_or((scheme, "single"));
    let kind = if kind == "unix" { "single" } else { kind };
    let is_encrypted = matches!(family, "rediss" | "valkeys");
    let is_set = |name| environment.get(name).is_some();
    let named_kind = environment.get("REDIS_TYPE").unwrap_or(kind);
    for (name, is_ignored, instead) in [
        (
            "REDIS_TLS",
            with_tls && !is_encrypted,
            "begin that URL with `rediss`",
        ),
        (
            "REDIS_TYPE",
            !named_kind.eq_ignore_ascii_case(kind),
            "begin that URL with `redis://`, `redis+sentinel://` or `redis+cluster://`",
        ),
        (
            "REDIS_AUTH",
            is_set("REDIS_AUTH"),
            "write user and password in that URL",
        ),
        (
            "REDIS_SENTINEL_AUTH",
            is_set("REDIS_SENTINEL_AUTH"),
            "write `sentinel_user` and `sentinel_pass` as parameters of that URL",
        ),
        (
            "CACHE_KEY_PREFIX",
            is_set("CACHE_KEY_PREFIX"),
            "write `prefix` as a parameter of that URL",
        ),
    ] {
        if is_ignored {
            problems.push(Problem {
                place: name.to_owned(),
                message: format!(
                    "it has no effect beside a REDIS_URL with `://`; {instead}, and leave this out"
                ),
            });
        }
    }
}

fn kind(environment: &Environment) -> Result<Kind, Problem> {
    let text = environment.get("REDIS_TYPE").unwrap_or("SINGLE");
    match text.to_ascii_uppercase().as_str() {
        "SINGLE" => Ok(Kind::Single),
        "SENTINEL" => Ok(Kind::Sentinel),
        "CLUSTER" => Ok(Kind::Cluster),
        _ => Err(Problem {
            place: "REDIS_TYPE".to_owned(),
            message: format!("`{text}` is not known here; write SINGLE, SENTINEL or CLUSTER"),
        }),
    }
}

fn url(
    environment: &Environment,
    kind: &Kind,
    at: &str,
    with_tls: bool,
) -> Result<String, Problem> {
    let auth = |name| environment.get(name).map(Login::of);
    let login = auth("REDIS_AUTH");
    let prefix = environment.get("CACHE_KEY_PREFIX").map(percent_encoded);
    let mut query: Vec<String> = Vec::new();
    query.extend(prefix.map(|prefix| format!("prefix={prefix}")));
    let family = if with_tls { "rediss" } else { "redis" };
    let before = login
        .as_ref()
        .map(|it| format!("{}:{}@", it.user, it.password));
    let before = before.unwrap_or_default();
    let socket = environment.get("REDIS_SOCKET_TYPE").unwrap_or("unix");
    let url = match kind {
        Kind::Single if socket.eq_ignore_ascii_case("tcp") => format!("{family}://{before}{at}/"),
        Kind::Single => {
            query.splice(0..0, login.iter().flat_map(|it| it.as_query("")));
            format!("redis+unix://{at}")
        }
        Kind::Cluster => format!("{family}+cluster://{before}{at}/"),
        Kind::Sentinel => {
            let (name, hosts) = at.split_once(',').ok_or_else(|| Problem {
                place: "REDIS_URL".to_owned(),
                message:
                    "with REDIS_TYPE=SENTINEL it is the primary's name, and then the sentinels: \
                          NAME,HOST:PORT,HOST:PORT"
                        .to_owned(),
            })?;
            let sentinel = auth("REDIS_SENTINEL_AUTH");
            query.extend(sentinel.iter().flat_map(|it| it.as_query("sentinel_")));
            format!(
                "{family}+sentinel://{before}{hosts}/{}",
                percent_encoded(name)
            )
        }
    };
    let mark = if query.is_empty() { "" } else { "?" };
    Ok(format!("{url}{mark}{}", query.join("&")))
}

/// `password` or `user:password`, each as it may stand in a URL.
struct Login {
    user: String,
    password: String,
}

impl Login {
    fn of(text: &str) -> Self {
        let (user, password) = text.split_once(':').unwrap_or(("", text));
        Self {
            user: percent_encoded(user),
            password: percent_encoded(password),
        }
    }

    /// As parameters of a URL, whose names begin so.
    fn as_query(&self, begin: &str) -> Vec<String> {
        let user = (!self.user.is_empty()).then(|| format!("{begin}user={}", self.user));
        let password = format!("{begin}pass={}", self.password);
        user.into_iter().chain([password]).collect()
    }
}
