//! File descriptors: their number, and what they are used for.

use crate::settings::Settings;
use ratekeeper_server::{OPERATORS_MAX, ServerConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

/// The descriptors of the process itself: listeners, rules, logs, file watchers.
const OWN: usize = 32;

/// The descriptors of each worker besides connections of clients: those it polls with, and connections
/// to stores.
const OWN_OF_WORKER: usize = 16;

/// The connections that are accepted however few descriptors there are.
const CLIENTS_MIN: usize = 16;

/// The numbers of connections that the descriptors allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Files {
    /// The most descriptors that the process may have open.
    limit: usize,
    /// Connections of clients, on all listeners together.
    pub(super) clients_max: usize,
    /// Requests to all upstreams of a gateway together, each of which may hold a connection.
    pub(super) upstream_requests_max: usize,
}

/// The program that shares out its descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Program {
    Service,
    /// Half of its descriptors are for upstreams.
    Gateway,
}

impl Files {
    /// Raises the limit as far as the process may, and divides the descriptors.
    pub(super) fn of_process(settings: &Settings, program: Program) -> Self {
        let limit = raise();
        let workers = settings.values.worker_threads.get();
        let files = Self::shared_out(limit, workers, program);
        files.tell(settings.values.address_share());
        files
    }

    /// Reserves the descriptors that operators need; of the rest a gateway needs half for its upstreams.
    fn shared_out(limit: usize, workers: usize, program: Program) -> Self {
        let kept = OWN + OWN_OF_WORKER.saturating_mul(workers) + 2 * OPERATORS_MAX;
        let rest = limit.saturating_sub(kept);
        let clients = match program {
            Program::Service => rest,
            Program::Gateway => rest / 2,
        };
        Self {
            limit,
            clients_max: clients.max(CLIENTS_MIN),
            upstream_requests_max: clients.max(CLIENTS_MIN),
        }
    }

    /// Limits the connections of `config`.
    pub(super) fn bound(&self, config: &mut ServerConfig) {
        config.connections_max = self.clients_max;
    }

    /// Logs it; `wanted` connections are a single address's.
    fn tell(&self, wanted: usize) {
        let (limit, clients) = (self.limit, self.clients_max);
        match clients < wanted {
            true => warn!(
                limit,
                clients,
                "few file descriptors: at most {clients} clients are connected at a time, and a single address may \
                 have {wanted} connections; raise the hard limit (ulimit -Hn, LimitNOFILE=)"
            ),
            false => info!(limit, clients, "file descriptors"),
        }
    }
}

/// Raises the soft limit to the hard one, and returns the limit that is then in force.
fn raise() -> usize {
    let before = getrlimit(Resource::Nofile);
    if before.current != before.maximum {
        let wanted = Rlimit {
            current: before.maximum,
            ..before
        };
        if let Err(error) = setrlimit(Resource::Nofile, wanted) {
            warn!(%error, "the limit of file descriptors cannot be raised");
        }
    }
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kept_is_shared_out() {
        let files = |limit, program| Files::shared_out(limit, 2, program);
        let service = files(1_024, Program::Service);
        assert_eq!(service.clients_max, 1_024 - 32 - 32 - 64);
        let gateway = files(1_024, Program::Gateway);
        assert_eq!(gateway.clients_max, service.clients_max / 2);
        assert_eq!(gateway.upstream_requests_max, gateway.clients_max);
        assert_eq!(files(64, Program::Gateway).clients_max, CLIENTS_MIN);
        assert!(files(usize::MAX, Program::Gateway).clients_max > 1 << 40);
    }
}
