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

/// A request as handlers receive it. Its body, which is bounded, is read before the sender is
/// checked.
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
    /// Returns the body, unless its content type is not JSON.
    pub(super) fn json(&self) -> Result<&[u8], ApiError> {
        if self.headers.contains_key(CONTENT_TYPE) && !is_json(&self.headers) {
            return Err(ApiError::not_json());
        }
        match &self.body {
            Ok(body) => Ok(body),
            Err(error) => Err(error.clone()),
        }
    }

    /// Returns the name of the sender if it has the permission. A sender that has it only for being
    /// on this host must not be a web page in a browser here.
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

    /// Returns the name of the sender, if it has the permission, and the body.
    pub(super) fn admitted(&self, power: Power) -> Result<(&str, &[u8]), ApiError> {
        let caller = self.admit(power)?;
        Ok((caller, self.json()?))
    }

    /// Checks that the sender may use the overrides in `question`, if it has any.
    pub(super) fn admit_override(&self, question: &Question<'_>) -> Result<(), ApiError> {
        match question.has_override() {
            true => self.admit(Power::Override).map(drop),
            false => Ok(()),
        }
    }

    /// Tells whether the sender may see names of rules: callers with a permission and this host
    /// may.
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

/// Returns true if the content type is `application/json`, with any parameters.
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
