//! Answers of a service in one form, whatever the transport.

use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitResponse;
use ratekeeper_proto::json::write_response;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::unit::Unit;

/// A reply to a request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// A decision; over `/json` with the HTTP status and the content type.
    Decided {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        http: Option<(u16, String)>,
        answer: Answer,
    },
    /// A gRPC status that is not OK.
    Failed { code: String, message: String },
    /// An HTTP response that is not a decision.
    Refused { http: (u16, String), body: String },
    /// The connection ended without a response.
    Closed,
}

impl Reply {
    /// The decision, if it is one.
    pub(crate) const fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Decided { answer, .. } => Some(answer),
            _ => None,
        }
    }
}

/// A `RateLimitResponse`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Answer {
    pub(crate) overall_code: String,
    pub(crate) statuses: Vec<Status>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) response_headers_to_add: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) request_headers_to_add: Vec<Value>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) raw_body: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dynamic_metadata: Option<Map<String, Value>>,
}

/// A `DescriptorStatus`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Status {
    pub(crate) code: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current_limit: Option<CurrentLimit>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) limit_remaining: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) duration_until_reset: Option<String>,
}

/// A `RateLimit`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct CurrentLimit {
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) requests_per_unit: u32,
    pub(crate) unit: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl CurrentLimit {
    pub(crate) fn unit(&self) -> Option<Unit> {
        Unit::from_name(&self.unit)
    }
}

impl Answer {
    /// Converts a message by way of its JSON, which is the form to compare.
    pub(crate) fn from_message(message: &RateLimitResponse) -> Result<Self, serde_json::Error> {
        let headers = message.response_headers_to_add.iter();
        let mut headers = headers.chain(&message.request_headers_to_add);
        // Fields that the JSON leaves out, because neither service sets them.
        let unusual = !message.raw_body.is_empty()
            || message.quota.is_some()
            || headers.any(|header| !header.raw_value.is_empty())
            || message.statuses.iter().any(|status| status.quota.is_some());
        let mut answer = Self::from_json(write_response(message).as_ref())?;
        if unusual {
            answer.raw_body = format!("{message:?}");
        }
        Ok(answer)
    }

    /// Parses protojson; an unknown field is an error, so that none goes uncompared.
    pub(crate) fn from_json(text: &[u8]) -> Result<Self, serde_json::Error> {
        let mut answer: Self = serde_json::from_slice(text)?;
        // envoyproxy/ratelimit writes limits as prototext, in which Go varies the spaces at random.
        if let Some(metadata) = &mut answer.dynamic_metadata {
            metadata.values_mut().for_each(single_spaced);
        }
        Ok(answer)
    }
}

fn single_spaced(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                match value {
                    Value::String(text) if name == "limit" => *text = text.replace("  ", " "),
                    value => single_spaced(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(single_spaced),
        _ => {}
    }
}
