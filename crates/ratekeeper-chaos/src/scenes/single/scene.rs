//! One server behind a proxy.

use std::time::Duration;

use ratekeeper_testkit::proxy::Proxy;
use ratekeeper_testkit::redis::{Reply, Server};

use crate::fault::{Fault, Scene};

/// A server behind a proxy.
pub(crate) struct Single {
    pub(super) server: Server,
    pub(super) proxy: Proxy,
    /// The user that nodes log in as, with the password.
    pub(super) user: Option<&'static str>,
}

impl Scene for Single {
    fn url(&self) -> String {
        let user = self.user.map(|user| format!("{user}@")).unwrap_or_default();
        format!("redis://{user}127.0.0.1:{}/", self.proxy.port())
    }
}

impl Single {
    pub(super) fn new(server: Server) -> Self {
        Self {
            proxy: Proxy::start(server.port()),
            server,
            user: None,
        }
    }

    pub(super) fn ask(&self, command: &[&str]) -> Reply {
        let reply = self.server.client().ask(command);
        assert!(!reply.is_error(), "{command:?}: {reply:?}");
        reply
    }

    /// The URL of the server without the proxy.
    pub(super) fn directly(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.server.port())
    }
}

/// The defaults that most faults start from.
pub(super) const FAULT: Fault<Single> = Fault::none(|| Single::new(Server::start()));

/// The interval between repeated acts of a fault.
pub(super) const OFTEN: Duration = Duration::from_millis(10);
