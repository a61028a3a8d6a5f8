//! Asking the admin API of a running service.

use crate::cli::AdminAccess;
use crate::client::{self, Answer, Opened, PATIENCE, Request};
use crate::settings::{ADMIN_TOKEN, Environment, percent_encoded};
use anyhow::{Context, Result, bail};
use ratekeeper_tls::{TlsFiles, TlsIdentity};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io::Read as _;
use std::time::Duration;

/// The longest token file that is read: longer than any token.
const TOKEN_BYTES_MAX: u64 = 4 << 10;

/// The address that admin commands are for.
const ASKS_AT: &str = "the admin address";

/// The state in which something has to be for a change of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    Any,
    Absent,
    Version(u64),
}

impl Condition {
    fn header(self) -> Option<(&'static str, String)> {
        match self {
            Self::Any => None,
            Self::Absent => Some(("If-None-Match", "*".to_owned())),
            Self::Version(version) => Some(("If-Match", format!("\"{version}\""))),
        }
    }
}

impl AdminAccess {
    /// Asks for `path`, and reads the answer.
    ///
    /// # Errors
    /// There is no answer, the service refuses, or its answer is of another version.
    pub(super) fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<T> {
        self.ask_if(method, path, body, Condition::Any)
    }

    /// Asks for `path` if what it names is in a state, and reads the answer; an empty one as null.
    ///
    /// # Errors
    /// As those of [`Self::ask`], or it is in another state.
    pub(super) fn ask_if<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &str,
        condition: Condition,
    ) -> Result<T> {
        let Answer { body, .. } = self.send(method, path, body, condition)?;
        self.read(&body)
    }

    /// Reads the body of an answer; an empty one as null.
    ///
    /// # Errors
    /// It is of another version.
    pub(super) fn read<T: DeserializeOwned>(&self, body: &str) -> Result<T> {
        let body = if body.is_empty() { "null" } else { body };
        let address = &self.address;
        serde_json::from_str(body)
            .with_context(|| format!("{address} answers what this version does not understand"))
    }

    /// Asks for `path`, and returns the answer of a service that does not refuse.
    ///
    /// # Errors
    /// There is no answer, or the service refuses with a [`Refusal`].
    pub(super) fn send(
        &self,
        method: &str,
        path: &str,
        body: &str,
        condition: Condition,
    ) -> Result<Answer> {
        self.accepted(self.answer(method, path, body, condition)?)
    }

    /// The answer, if it is no refusal.
    ///
    /// # Errors
    /// It is a [`Refusal`].
    pub(super) fn accepted(&self, answer: Answer) -> Result<Answer> {
        match (200..300).contains(&answer.status) {
            true => Ok(answer),
            false => Err(self.refused(&answer)),
        }
    }

    /// Asks for `path`, and returns the answer as it is.
    ///
    /// # Errors
    /// There is no answer.
    pub(super) fn answer(
        &self,
        method: &str,
        path: &str,
        body: &str,
        condition: Condition,
    ) -> Result<Answer> {
        self.answer_within(PATIENCE, method, path, (body, condition))
    }

    /// The same, for an answer that may take longer.
    ///
    /// # Errors
    /// There is no answer.
    pub(super) fn answer_within(
        &self,
        patience: Duration,
        method: &str,
        path: &str,
        (body, condition): (&str, Condition),
    ) -> Result<Answer> {
        let token = self.token()?;
        let condition = condition.header();
        let condition = condition.as_ref().map(|(name, value)| (*name, &**value));
        let asked = Request {
            method,
            path,
            body,
            token: token.as_deref(),
            condition,
            patience,
            asks_at: ASKS_AT,
        };
        client::send(&self.address, &self.files(), &asked)
    }

    /// Reads all pages of a list, each with `page`, which returns the cursor of the next one.
    ///
    /// # Errors
    /// Those of `page`.
    pub(super) fn each_page<C: PartialEq + ToString>(
        &self,
        path: &str,
        mut page: impl FnMut(&str) -> Result<Option<C>>,
    ) -> Result<()> {
        /// More than any service has: one whose cursors go in circles would never let us go.
        const PAGES_MAX: usize = 1_000_000;

        let mut cursor: Option<C> = None;
        for _ in 0..PAGES_MAX {
            let after = cursor.as_ref().map_or_else(String::new, |cursor| {
                format!("&cursor={}", percent_encoded(&cursor.to_string()))
            });
            let next = page(&format!("{path}{after}"))?;
            if next.is_none() || next == cursor {
                return Ok(());
            }
            cursor = next;
        }
        bail!("{}{path} has no last page", self.address)
    }

    /// Asks for `path`, and returns the answer while its body comes.
    ///
    /// # Errors
    /// There is no answer, or the service refuses.
    pub(super) fn open(&self, path: &str) -> Result<Opened> {
        let token = self.token()?;
        let asked = Request {
            method: "GET",
            path,
            body: "",
            token: token.as_deref(),
            condition: None,
            patience: PATIENCE,
            asks_at: ASKS_AT,
        };
        let (answer, opened) = client::open(&self.address, &self.files(), &asked)?;
        opened.ok_or_else(|| self.refused(&answer))
    }

    fn refused(&self, answer: &Answer) -> anyhow::Error {
        let (address, status) = (&self.address, answer.status);
        let (code, detail) = problem(&answer.body);
        let message = match status {
            // What is missing is the route itself: every listener of a node says so of paths that it does not serve.
            404 | 405 if code.is_empty() || is_route_missing(&code, &detail) => format!(
                "{address} answers {status}; is it the admin address? It is 127.0.0.1:6070 by default"
            ),
            _ => format!("{address} answers {status}: {detail}"),
        };
        let refusal = Refusal {
            status,
            code,
            message,
        };
        refusal.into()
    }

    fn token(&self) -> Result<Option<String>> {
        let text = match &self.credentials.token_file {
            Some(path) => {
                let mut text = String::new();
                std::fs::File::open(path)
                    .and_then(|file| file.take(TOKEN_BYTES_MAX).read_to_string(&mut text))
                    .with_context(|| format!("cannot read the token in {}", path.display()))?;
                Some(text)
            }
            None => Environment::of_process()
                .get(ADMIN_TOKEN)
                .map(str::to_owned),
        };
        let token = text.map(|text| text.trim().to_owned());
        let is_header = |token: &String| token.bytes().all(|byte| byte.is_ascii_graphic());
        if !token.iter().all(is_header) {
            bail!("a token has visible ASCII characters only");
        }
        Ok(token.filter(|token| !token.is_empty()))
    }

    fn files(&self) -> TlsFiles {
        let told = &self.credentials;
        let identity = told.cert.clone().zip(told.key.clone());
        TlsFiles {
            authorities: told.ca.clone(),
            identity: identity.map(|(certificate, key)| TlsIdentity { certificate, key }),
        }
    }
}

/// The refusal of a service to do what was asked.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct Refusal {
    pub(super) status: u16,
    /// The code in its body; empty if there is none.
    pub(super) code: String,
    message: String,
}

impl Refusal {
    /// Returns true if the service answers others: it is the token or the role that does not suffice.
    pub(super) const fn is_about_the_sender(&self) -> bool {
        matches!(self.status, 401 | 403 | 429)
    }
}

/// A problem as the admin API describes it.
#[derive(Deserialize)]
struct Problem {
    detail: String,
    #[serde(default)]
    field: String,
    #[serde(default)]
    code: String,
}

/// The code and the detail of an error of the admin API; of another one the whole body, and no code.
fn problem(body: &str) -> (String, String) {
    match serde_json::from_str::<Problem>(body) {
        Ok(it) if it.field.is_empty() => (it.code, it.detail),
        Ok(it) => (it.code, format!("{}: {}", it.field, it.detail)),
        Err(_) => (String::new(), body.trim().to_owned()),
    }
}

/// Returns true if a problem is about the path that was asked for, and not about what the path names.
fn is_route_missing(code: &str, detail: &str) -> bool {
    code == "METHOD_NOT_ALLOWED" || detail.starts_with("there is nothing at ")
}

/// The parameters that have a value, as the query of a URL.
pub(super) fn query<'a>(
    parameters: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
) -> String {
    let given = parameters.into_iter();
    let given =
        given.filter_map(|(name, value)| Some(format!("{name}={}", percent_encoded(value?))));
    given.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_fit_into_a_path() {
        assert_eq!(
            percent_encoded("d.k_POST /a?#%é"),
            "d.k_POST%20%2Fa%3F%23%25%C3%A9"
        );
    }

    #[test]
    fn problems_are_told_by_their_field() {
        let problem = r#"{"title":"Bad Request","status":400,"detail":"expected 1 to 1000","code":"X","field":"?limit"}"#;
        let (code, detail) = super::problem(problem);
        assert_eq!((&*code, &*detail), ("X", "?limit: expected 1 to 1000"));
        assert_eq!(super::problem("<html>").1, "<html>");
    }
}
