//! A request to the API: who sends it, and what it says.

use std::sync::Arc;

use axum::RequestExt;
use axum::body::Bytes;
use axum::extract::rejection::ExtensionRejection;
use axum::extract::{Extension, FromRequest, Request};
use http::HeaderMap;
use http::header::{AUTHORIZATION, CONTENT_TYPE};

use super::ApiError;
use super::question::Question;
use super::strict::Names;
use crate::app::App;
use crate::callers::Power;
use crate::listen::Peer;
use crate::pages::{self, Scheme};
use crate::store::ServedStore;
use crate::v1::Refusal;

/// What a handler is given. The body is there before anybody has looked at who sent it, bounded.
pub(crate) struct Asked<S> {
    pub(super) app: Arc<App<S>>,
    peer: Peer,
    headers: HeaderMap,
    body: Result<Bytes, ApiError>,
}

impl<S: ServedStore> FromRequest<Arc<App<S>>> for Asked<S> {
    type Rejection = ExtensionRejection;

    async fn from_request(
        mut request: Request,
        app: &Arc<App<S>>,
    ) -> Result<Self, ExtensionRejection> {
        let Extension(peer) = request.extract_parts().await?;
        let headers = std::mem::take(request.headers_mut());
        Ok(Self {
            app: Arc::clone(app),
            peer,
            headers,
            body: Bytes::from_request(request, app)
                .await
                .map_err(ApiError::from),
        })
    }
}

impl<S: ServedStore> Asked<S> {
    /// The body, unless it says itself that it is no JSON.
    pub(super) fn json(&self) -> Result<&[u8], ApiError> {
        if self.headers.contains_key(CONTENT_TYPE) && !is_json(&self.headers) {
            return Err(ApiError::not_json());
        }
        match &self.body {
            Ok(body) => Ok(body),
            Err(error) => Err(error.clone()),
        }
    }

    /// The name of whoever asks, if it may do that. Whoever may for being on this host alone must
    /// not be a web page in a browser that runs here.
    fn admit(&self, power: Power) -> Result<&str, ApiError> {
        let authorization = self.headers.get(AUTHORIZATION);
        let authorization = authorization.map(|value| value.as_bytes());
        let callers = &self.app.callers;
        let admitted = callers.admit(Some(&self.peer), authorization, power);
        let admitted = admitted.map_err(Refusal::from)?;
        if admitted.is_by_place {
            let scheme = Scheme::of(self.app.is_encrypted("http"));
            pages::refuse(&self.headers, &self.peer, scheme)?;
        }
        Ok(admitted.name)
    }

    /// The name of whoever asks, if it may do that, and the body.
    pub(super) fn admitted(&self, power: Power) -> Result<(&str, &[u8]), ApiError> {
        let caller = self.admit(power)?;
        Ok((caller, self.json()?))
    }

    /// Whether whoever asks may bring the limits along that `question` has.
    pub(super) fn admit_override(&self, question: &Question<'_>) -> Result<(), ApiError> {
        match question.has_override() {
            true => self.admit(Power::Override).map(drop),
            false => Ok(()),
        }
    }

    /// Whether whoever asks may be told names of rules: callers with a permission, and this host.
    pub(super) fn names(&self) -> Names {
        match self.admit(Power::Override) {
            Ok(_) => Names::Told,
            Err(_) => Names::Kept,
        }
    }

    pub(super) fn is_loaded(&self) -> Result<(), ApiError> {
        match self.app.is_loaded() {
            true => Ok(()),
            false => Err(ApiError::no_rules()),
        }
    }
}

/// Whether the body is `application/json`, with whatever parameters.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let Some(content_type) = headers.get(CONTENT_TYPE) else {
        return false;
    };
    let essence = content_type
        .as_bytes()
        .split(|byte| *byte == b';')
        .next()
        .unwrap_or_default();
    essence
        .trim_ascii()
        .eq_ignore_ascii_case(b"application/json")
}
