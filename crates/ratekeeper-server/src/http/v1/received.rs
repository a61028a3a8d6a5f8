//! A request to the API: who sends it, and what it says.

use std::sync::Arc;

use axum::RequestExt;
use axum::body::Bytes;
use axum::extract::rejection::ExtensionRejection;
use axum::extract::{Extension, FromRequest, Request};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde::Deserialize;

use crate::access::callers::Power;
use crate::app::App;
use crate::http::error::ApiError;
use crate::http::json_body::read_json;
use crate::http::media_type::is_json;
use crate::http::pages::{self, Scheme};
use crate::listen::Peer;
use crate::logs::denials::CheckOrigin;
use crate::protocol::v1::{Api, Refusal, Sender};

/// A request as handlers receive it. Its body, which is bounded, is read before the sender is
/// checked.
pub(crate) struct Received {
    app: Arc<App>,
    peer: Peer,
    headers: HeaderMap,
    body: Result<Bytes, ApiError>,
}

impl FromRequest<Arc<App>> for Received {
    type Rejection = ExtensionRejection;

    async fn from_request(
        mut request: Request,
        app: &Arc<App>,
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

impl Received {
    /// The handlers, for the sender of this request.
    pub(super) fn api(&self) -> Api<'_, Self> {
        Api::new(&self.app, self)
    }

    /// Parses the body, unless its content type is not JSON. Any page can have its visitor's browser post a body
    /// without a type, or as a form.
    pub(super) fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, ApiError> {
        match &self.body {
            Ok(body) if !body.is_empty() && !is_json(&self.headers) => Err(ApiError::not_json()),
            Ok(body) => read_json(body),
            Err(error) => Err(error.clone()),
        }
    }
}

impl Sender for Received {
    type Error = ApiError;

    /// A sender that has the permission only for being on this host must not be a web page in a
    /// browser here.
    fn permit(&self, power: Power) -> Result<&str, ApiError> {
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

    fn origin(&self) -> CheckOrigin<'_> {
        CheckOrigin::new("v1", Some(&self.headers))
    }
}
