//! Names that fields and parameters had in earlier versions: they are understood, and warned of.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::HeaderValue;
use http::header::WARNING;
use ratekeeper_quota::BulkFormat;
use serde_json::Value;

/// Earlier names, each with the name of today.
const RENAMED: [(&str, &str); 3] = [("api_key", "tenant"), ("tier", "plan"), ("tiers", "plans")];

/// The earlier names that a request has used, each once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct OldNames([bool; RENAMED.len()]);

impl OldNames {
    /// Those of the parameters of a query.
    fn of_query(query: &str) -> Self {
        let names = query.split('&').filter_map(|pair| pair.split('=').next());
        Self::among(names)
    }

    /// Those of the fields of one tenant, as JSON.
    pub(super) fn of_json(body: &[u8]) -> Self {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let names = |value: &Value| {
            let fields = value.as_object().into_iter().flatten();
            Self::among(fields.map(|(name, _)| name.as_str()))
        };
        let plans = ["plans", "tiers"].into_iter();
        let plans = plans.filter_map(|list| body[list].as_array()).flatten();
        plans.map(names).fold(names(&body), Self::or)
    }

    /// Those of a file of tenants.
    pub(super) fn of_file(format: BulkFormat, text: &str) -> Self {
        match format {
            BulkFormat::Csv => {
                let head = text.lines().next().unwrap_or_default();
                Self::among(head.split(',').map(|name| name.trim().trim_matches('"')))
            }
            BulkFormat::JsonLines => {
                let lines = text.lines().map(|line| Self::of_json(line.as_bytes()));
                lines.fold(Self::default(), Self::or)
            }
        }
    }

    fn among<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut found = Self::default();
        for name in names {
            for (known, (old, _)) in found.0.iter_mut().zip(RENAMED) {
                *known |= name == old;
            }
        }
        found
    }

    fn or(self, other: Self) -> Self {
        let mut both = self;
        for (known, more) in both.0.iter_mut().zip(other.0) {
            *known |= more;
        }
        both
    }

    /// A warning about each.
    pub(super) fn warnings(self) -> impl Iterator<Item = String> {
        let used = RENAMED
            .into_iter()
            .zip(self.0)
            .filter(|(_, is_used)| *is_used);
        used.map(|((old, new), _)| {
            format!("`{old}` is now called `{new}`; the old name still works")
        })
    }

    /// Tells of them in the header `warning`, for bodies that have no room for it.
    pub(super) fn add_to(self, response: &mut Response) {
        let all: Vec<_> = self
            .warnings()
            .map(|warning| format!("299 - \"{warning}\""))
            .collect();
        // Names of ours between quotes are a header.
        if !all.is_empty()
            && let Ok(value) = HeaderValue::from_str(&all.join(", "))
        {
            response.headers_mut().insert(WARNING, value);
        }
    }
}

/// Warns of earlier names in queries.
pub(super) async fn warn_of_query(request: Request, next: Next) -> Response {
    let used = OldNames::of_query(request.uri().query().unwrap_or_default());
    let mut response = next.run(request).await;
    used.add_to(&mut response);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(names: OldNames) -> Vec<String> {
        let told = names
            .warnings()
            .map(|it| it.split('`').nth(1).unwrap_or_default().to_owned());
        told.collect()
    }

    #[test]
    fn earlier_names_are_found_where_names_stand() {
        assert_eq!(told(OldNames::of_query("tier=pro&limit=3")), ["tier"]);
        assert_eq!(
            told(OldNames::of_query("plan=tier&entry=api_key:a")),
            [""; 0]
        );
        assert_eq!(
            told(OldNames::of_json(br#"{"tiers":[{"tier":"pro"}]}"#)),
            ["tier", "tiers"]
        );
        assert_eq!(
            told(OldNames::of_json(br#"{"plans":[{"tier":"pro"}]}"#)),
            ["tier"]
        );
        assert_eq!(told(OldNames::of_json(br#"{"plan":"tier"}"#)), [""; 0]);
        let csv = "api_key, \"tier\",descriptor\ntiers,,";
        assert_eq!(
            told(OldNames::of_file(BulkFormat::Csv, csv)),
            ["api_key", "tier"]
        );
        let lines = "{\"tenant\":\"a\"}\n{\"api_key\":\"b\"}\n";
        assert_eq!(
            told(OldNames::of_file(BulkFormat::JsonLines, lines)),
            ["api_key"]
        );
    }
}
