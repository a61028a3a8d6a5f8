//! Finds the decision in an answer's bytes without decoding all of them.

use prost::bytes::Buf;
use prost::encoding::{DecodeContext, decode_key, decode_varint, skip_field};

use serde::Deserialize;

use crate::failure::Failure;
use crate::service::{HttpPath, Over, Service};

/// The decisions of one answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Decisions {
    pub(crate) allowed: u32,
    pub(crate) denied: u32,
}

impl Decisions {
    const ALLOWED: Self = Self {
        allowed: 1,
        denied: 0,
    };
    const DENIED: Self = Self {
        allowed: 0,
        denied: 1,
    };

    const fn and(self, other: Self) -> Self {
        Self {
            allowed: self.allowed + other.allowed,
            denied: self.denied + other.denied,
        }
    }
}

/// The part of a `/v1/check` answer that is of interest.
#[derive(Deserialize)]
struct Checked {
    decision: Decision,
}

/// A `/v1/checks` answer.
#[derive(Deserialize)]
struct AllChecked {
    results: Vec<Checked>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Decision {
    Allow,
    Deny,
}

impl Checked {
    const fn decisions(&self) -> Decisions {
        match self.decision {
            Decision::Allow => Decisions::ALLOWED,
            Decision::Deny => Decisions::DENIED,
        }
    }
}

/// Reads the body of an answer with that status.
pub(crate) fn read(service: &Service, status: u16, body: &[u8]) -> Result<Decisions, Failure> {
    match (service, status) {
        (Service::Rls(_), 200) => decision(message(body)?),
        // `allowed` is the first field, left out when false.
        (Service::Throttlecrab, 200) => match first_field(message(body)?)? {
            1 => Ok(Decisions::ALLOWED),
            _ => Ok(Decisions::DENIED),
        },
        (Service::Http(HttpPath::Json, _), 200) => Ok(Decisions::ALLOWED),
        (Service::Http(HttpPath::Json, _), 429) => Ok(Decisions::DENIED),
        (Service::Http(HttpPath::Check, _), 200) => {
            let checked: Checked = serde_json::from_slice(body).map_err(|_| Failure::Malformed)?;
            Ok(checked.decisions())
        }
        (
            Service::Batch {
                over: Over::Grpc,
                size,
                ..
            },
            200,
        ) => batch(message(body)?, *size),
        (Service::Batch { size, .. }, 200) => {
            let checked: AllChecked =
                serde_json::from_slice(body).map_err(|_| Failure::Malformed)?;
            if checked.results.len() != *size as usize {
                return Err(Failure::Malformed);
            }
            let all = checked.results.iter().map(Checked::decisions);
            Ok(all.fold(Decisions::default(), Decisions::and))
        }
        (Service::Gateway(_), 200..400) => Ok(Decisions::ALLOWED),
        (Service::Gateway(_), 429) => Ok(Decisions::DENIED),
        (_, status) => Err(Failure::Status(status)),
    }
}

/// The single uncompressed message of a gRPC body.
fn message(body: &[u8]) -> Result<&[u8], Failure> {
    let Some((&[0, a, b, c, d], message)) = body.split_first_chunk() else {
        return Err(Failure::Malformed);
    };
    if message.len() == u32::from_be_bytes([a, b, c, d]) as usize {
        Ok(message)
    } else {
        Err(Failure::Malformed)
    }
}

/// Reads a message whose field 1 is 1 for allow and 2 for deny: Envoy's and ours.
fn decision(message: &[u8]) -> Result<Decisions, Failure> {
    match first_field(message)? {
        1 => Ok(Decisions::ALLOWED),
        2 => Ok(Decisions::DENIED),
        _ => Err(Failure::Malformed),
    }
}

/// Reads a `CheckBatchResponse`, whose fields are all answers.
fn batch(mut message: &[u8], size: u32) -> Result<Decisions, Failure> {
    let malformed = |_| Failure::Malformed;
    let mut all = Decisions::default();
    while message.has_remaining() {
        let (number, _) = decode_key(&mut message).map_err(malformed)?;
        let length = decode_varint(&mut message).map_err(malformed)?;
        let length = usize::try_from(length).map_err(|_| Failure::Malformed)?;
        let (one, rest) = message.split_at_checked(length).ok_or(Failure::Malformed)?;
        message = rest;
        if number == 1 {
            all = all.and(decision(one)?);
        }
    }
    if all.allowed + all.denied == size {
        Ok(all)
    } else {
        Err(Failure::Malformed)
    }
}

/// The value of field 1, 0 if it is missing.
fn first_field(mut message: &[u8]) -> Result<u64, Failure> {
    let malformed = |_| Failure::Malformed;
    while message.has_remaining() {
        let (number, wire_type) = decode_key(&mut message).map_err(malformed)?;
        if number == 1 {
            return decode_varint(&mut message).map_err(malformed);
        }
        skip_field(wire_type, number, &mut message, DecodeContext::default()).map_err(malformed)?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Question;

    fn question() -> Question {
        Question::new("d", &[("k", "{key}")])
    }

    #[test]
    fn codes_are_found_wherever_they_stand() {
        let rls = Service::Rls(question());
        assert_eq!(
            read(&rls, 200, &[0, 0, 0, 0, 2, 8, 1]),
            Ok(Decisions::ALLOWED)
        );
        let after_a_status = [0, 0, 0, 0, 6, 0x12, 2, 8, 1, 8, 2];
        assert_eq!(read(&rls, 200, &after_a_status), Ok(Decisions::DENIED));
        for bad in [
            &[][..],
            &[0, 0, 0, 0, 0],
            &[0, 0, 0, 0, 3, 8, 1],
            &[1, 0, 0, 0, 2, 8, 1],
        ] {
            assert_eq!(read(&rls, 200, bad), Err(Failure::Malformed), "{bad:?}");
        }
        assert_eq!(
            read(&Service::Throttlecrab, 200, &[0; 5]),
            Ok(Decisions::DENIED)
        );
        assert_eq!(read(&rls, 503, &[]), Err(Failure::Status(503)));
    }

    #[test]
    fn a_batch_has_as_many_decisions_as_it_has_checks() {
        let batch = Service::Batch {
            over: Over::Http,
            question: question(),
            size: 2,
        };
        let body = br#"{"results":[{"decision":"allow","statuses":[{"decision":"allow"}]},{"decision":"deny"}]}"#;
        let both = Decisions {
            allowed: 1,
            denied: 1,
        };
        assert_eq!(read(&batch, 200, body), Ok(both));
        let one = br#"{"results":[{"decision":"allow"}]}"#;
        assert_eq!(read(&batch, 200, one), Err(Failure::Malformed));
        let batch = Service::Batch {
            over: Over::Grpc,
            question: question(),
            size: 2,
        };
        let body = [0, 0, 0, 0, 8, 0x0a, 2, 8, 1, 0x0a, 2, 8, 2];
        assert_eq!(read(&batch, 200, &body), Ok(both));
        let one = [0, 0, 0, 0, 4, 0x0a, 2, 8, 1];
        assert_eq!(read(&batch, 200, &one), Err(Failure::Malformed));
        let cut = [0, 0, 0, 0, 4, 0x0a, 3, 8, 1];
        assert_eq!(read(&batch, 200, &cut), Err(Failure::Malformed));
    }
}
