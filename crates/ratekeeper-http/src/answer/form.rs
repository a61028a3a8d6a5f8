//! The form of a refusal that a client understands.

use std::str::FromStr;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};

use crate::{NeitherWord, RpcId};

/// The form of a refusal's body for requests that do not ask for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BodyForm {
    /// `json`: `{"error": {"code", "message", …}}`.
    #[default]
    Json,
    /// `problem`: `application/problem+json` (RFC 9457), with the problem types of the IETF draft.
    Problem,
    /// `json-rpc`: an error of JSON-RPC 2.0, with the id of the call where that is known.
    JsonRpc,
}

/// The form of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// An HTTP status, with a body in that form.
    Http(BodyForm),
    /// gRPC: status 200, and the error in headers, with the content type of the request.
    Grpc(HeaderValue),
    /// An HTTP status, with an error of JSON-RPC about the call of this id.
    Rpc(RpcId),
}

impl Form {
    /// The form for a request with these headers: gRPC for a gRPC request, else the form that its
    /// `Accept` names, else `usual`.
    #[must_use]
    pub fn wanted(headers: &HeaderMap, usual: BodyForm) -> Self {
        match headers.get(CONTENT_TYPE) {
            Some(kind) if kind.as_bytes().starts_with(b"application/grpc") => {
                Self::Grpc(kind.clone())
            }
            _ => Self::Http(BodyForm::wanted(headers, usual)),
        }
    }

    /// This form, with the id of the call where it has a place for it.
    #[must_use]
    pub fn about(self, call: Option<&RpcId>) -> Self {
        match (self, call) {
            (Self::Http(BodyForm::JsonRpc), Some(id)) => Self::Rpc(id.clone()),
            (form, _) => form,
        }
    }
}

impl BodyForm {
    /// The form that a request's `Accept` names, else `usual`.
    #[must_use]
    pub fn wanted(headers: &HeaderMap, usual: Self) -> Self {
        match (accepted(headers), usual) {
            // It is JSON, too.
            (Some(Self::Json), Self::JsonRpc) => Self::JsonRpc,
            (accepted, usual) => accepted.unwrap_or(usual),
        }
    }
}

/// Parses the name in settings.
impl FromStr for BodyForm {
    type Err = NeitherWord;

    fn from_str(name: &str) -> Result<Self, NeitherWord> {
        match name {
            "json" => Ok(Self::Json),
            "problem" => Ok(Self::Problem),
            "json-rpc" => Ok(Self::JsonRpc),
            _ => Err(NeitherWord::new(name, &["json", "problem", "json-rpc"])),
        }
    }
}

/// The form that `Accept` names with the highest quality.
fn accepted(headers: &HeaderMap) -> Option<BodyForm> {
    let mut best: Option<(f32, BodyForm)> = None;
    for line in headers.get_all(ACCEPT) {
        for range in line.to_str().unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let form = match parts.next() {
                Some("application/json") => BodyForm::Json,
                Some("application/problem+json") => BodyForm::Problem,
                _ => continue,
            };
            let quality = parts.find_map(|part| part.strip_prefix("q="));
            let quality = quality.map_or(1.0, |q| q.parse().unwrap_or(0.0));
            // Of equal qualities the first wins.
            if quality > best.map_or(0.0, |(quality, _)| quality) {
                best = Some((quality, form));
            }
        }
    }
    best.map(|(_, form)| form)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(name: http::HeaderName, value: &'static str) -> Form {
        let headers = HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
        Form::wanted(&headers, BodyForm::Json)
    }

    #[test]
    fn a_named_form_is_used() {
        use BodyForm::{Json, Problem};
        for (accept, form) in [
            ("*/*", Json),
            ("application/problem+json", Problem),
            ("application/json, application/problem+json", Json),
            (
                "application/json;q=0.5, application/problem+json; q=0.9",
                Problem,
            ),
            ("application/problem+json;q=0", Json),
            ("application/problem+json;q=nonsense", Json),
            ("text/html, application/problem+json;q=0.1", Problem),
        ] {
            assert_eq!(wanted(ACCEPT, accept), Form::Http(form), "{accept}");
        }
        let kind = "application/grpc+proto";
        let same = HeaderValue::from_static(kind);
        assert_eq!(wanted(CONTENT_TYPE, kind), Form::Grpc(same));
        assert_eq!(wanted(CONTENT_TYPE, "application/json"), Form::Http(Json));
        let mcp = HeaderMap::from_iter([(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        )]);
        assert_eq!(BodyForm::wanted(&mcp, BodyForm::JsonRpc), BodyForm::JsonRpc);
        assert_eq!(
            Form::wanted(&HeaderMap::new(), Problem),
            Form::Http(Problem)
        );
    }
}
