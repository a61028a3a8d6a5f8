//! `/dashboard`: the page that shows this node. Page and files hold no data, so they need no token; what the page asks
//! for does.

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use ratekeeper_dashboard::{DashboardFile, file};

/// Nothing from elsewhere, nothing inline, and no other page around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Headers of all answers. Files keep their names from build to build, so they are not cached.
const HEADERS: [(HeaderName, HeaderValue); 5] = [
    (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

const MISSING: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Ratekeeper</title></head><body>
<p>The dashboard is not in this build: install Node 20.19 or newer and run <code>cargo xtask build</code>.</p>
</body></html>
";

pub(super) async fn page() -> Response {
    page_or_advice(file("index.html"))
}

/// The page, or how to get it where it was not built.
fn page_or_advice(page: Option<DashboardFile>) -> Response {
    match page {
        Some(page) => answer(page),
        None => {
            let kind = [(CONTENT_TYPE, "text/html; charset=utf-8")];
            (StatusCode::NOT_FOUND, HEADERS, kind, MISSING).into_response()
        }
    }
}

pub(super) async fn part(Path(name): Path<String>) -> Response {
    match file(&name) {
        Some(part) => answer(part),
        None => (StatusCode::NOT_FOUND, HEADERS).into_response(),
    }
}

fn answer(file: DashboardFile) -> Response {
    let kind = [(CONTENT_TYPE, file.content_type)];
    (HEADERS, kind, file.bytes).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_build_without_the_page_says_how_to_get_it() {
        let answer = page_or_advice(None);
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
        let body = axum::body::to_bytes(answer.into_body(), 4_096).await;
        let text = String::from_utf8_lossy(&body.expect("it is short")).into_owned();
        assert!(
            text.contains("install Node") && text.contains("cargo xtask build"),
            "{text}"
        );
    }
}
