//! Commands about a running service, and how to reach it.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// The way to the admin API of a running service.
#[derive(Clone, Debug, Args)]
pub(crate) struct AdminAccess {
    /// Admin address of the service: http://HOST:PORT, https://HOST:PORT or unix:/PATH
    #[arg(
        long = "admin",
        value_name = "URL",
        default_value = "http://127.0.0.1:6070"
    )]
    pub(crate) address: String,
    #[command(flatten)]
    pub(crate) credentials: AdminCredentials,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The token and the TLS files for an admin API.
#[derive(Clone, PartialEq, Eq, Debug, Default, Args)]
pub(crate) struct AdminCredentials {
    /// File with the token, if the service needs one [default: the variable RATEKEEPER_ADMIN_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// With https://: CA certificates that verify the service, as PEM [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// With https://: client certificate (mTLS), as PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of that certificate, as unencrypted PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RulesList {
    /// Only rules of this domain
    #[arg(long)]
    pub(crate) domain: Option<String>,
    /// Only rules that are switched
    #[arg(long)]
    pub(crate) switched: bool,
    #[command(flatten)]
    pub(crate) access: AdminAccess,
}

#[derive(Debug, Args)]
pub(crate) struct SwitchArgs {
    /// Id of the rule, as `rules list` prints it
    #[arg(value_name = "ID")]
    pub(crate) rule: String,
    #[command(flatten)]
    pub(crate) access: AdminAccess,
}

#[derive(Debug, Args)]
pub(crate) struct NodesArgs {
    #[command(flatten)]
    pub(crate) access: AdminAccess,
}

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Print the next state as text, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Admin address of a node: http://HOST:PORT, https://HOST:PORT or unix:/PATH; repeat it to watch several nodes
    #[arg(
        long = "admin",
        value_name = "URL",
        default_value = "http://127.0.0.1:6070"
    )]
    pub(crate) addresses: Vec<String>,
    #[command(flatten)]
    pub(crate) credentials: AdminCredentials,
    /// Print the next state as JSON, and end; of several nodes, a list
    #[arg(long)]
    pub(crate) json: bool,
}

impl Top {
    /// The ways to the nodes, each once.
    pub(crate) fn nodes(&self) -> Vec<AdminAccess> {
        let mut nodes: Vec<AdminAccess> = Vec::new();
        for address in &self.addresses {
            if nodes.iter().all(|node| node.address != *address) {
                nodes.push(AdminAccess {
                    address: address.clone(),
                    credentials: self.credentials.clone(),
                    json: self.json,
                });
            }
        }
        nodes
    }
}

/// The limits of a tenant that a question is about.
#[derive(Debug, Args)]
pub(crate) struct TenantLimits {
    /// Domain, if several have tenants
    #[arg(long)]
    pub(crate) domain: Option<String>,
    /// Entry after the tenant's, for limits whose values differ by request: KEY:VALUE, or a JSON list of entries;
    /// repeatable
    #[arg(long = "descriptor", value_name = "KEY:VALUE")]
    pub(crate) descriptors: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Usage {
    /// Tenant
    pub(crate) tenant: String,
    #[command(flatten)]
    pub(crate) limits: TenantLimits,
    #[command(flatten)]
    pub(crate) access: AdminAccess,
}

#[derive(Debug, Args)]
pub(crate) struct Why {
    /// Tenant: its value or whole entry (customer:acme), its fingerprint (~…), hash: and its keyed hash, or * and its last
    /// characters. Left out, it is read from standard input, so that a secret is in no list of processes
    pub(crate) tenant: Option<String>,
    #[command(flatten)]
    pub(crate) limits: TenantLimits,
    #[command(flatten)]
    pub(crate) access: AdminAccess,
}

#[derive(Debug, Args)]
pub(crate) struct Denials {
    /// Only those of this tenant, named as for `ratekeeper why`; - is read from standard input
    pub(crate) tenant: Option<String>,
    /// Only those by this rule
    #[arg(long, value_name = "ID")]
    pub(crate) rule: Option<String>,
    /// Only those in this domain
    #[arg(long)]
    pub(crate) domain: Option<String>,
    /// Only requests that were denied, or only those that passed because their rule is in shadow
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<DenialKind>,
    /// Most tenants and rules, and most requests, to list, up to 100
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) limit: u8,
    /// Print new denials as they come, until Ctrl-C; with --json, one object a line
    #[arg(long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) access: AdminAccess,
}

/// The kind of denials.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum DenialKind {
    Denied,
    WouldBeDenied,
}

/// The commands about tokens, which work on the quota database of the services, or on the data folder of one.
#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Create a token and print it; it cannot be shown again
    #[command(after_help = "\
With a quota database the token counts on every node that uses it, within 2 seconds; without one, on the node of the data folder alone. Only the hash of the token is kept. As soon as there is a token, every client of the admin API needs one, on this host too: `ratekeeper top`, the dashboard and scripts on the node are refused without it. Metrics and health stay open to this host.

--local makes a token of one node alone, which counts whatever the database says: keep one for the time when the database and the node's copy of its tokens are gone.

Examples:
  ratekeeper token create ann --role editor --quotas postgres://ratekeeper@db/ratekeeper
  ratekeeper token create ann --role editor --data-dir /var/lib/ratekeeper
  ratekeeper token create break-glass --role admin --local --data-dir /var/lib/ratekeeper
  RATEKEEPER_ADMIN_TOKEN=rk_admin_… ratekeeper rules list")]
    Create {
        /// Name of the holder
        name: String,
        /// Role of the holder: viewer (read), editor (switch rules, change quotas), admin (everything)
        #[arg(long, value_name = "ROLE", value_parser = ["viewer", "editor", "admin"])]
        role: String,
        #[command(flatten)]
        place: TokenPlace,
    },
    /// List the tokens: names, roles, dates
    List {
        #[command(flatten)]
        place: TokenPlace,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token, and say which nodes refuse it by now
    #[command(after_help = "\
With a quota database the command waits until every node that has reported within 15 seconds refuses the token, for 10 seconds at most, and fails if one does not. Nodes that have not reported may be stopped, or cut off from the database: those still accept the token.

Examples:
  ratekeeper token revoke ann
  ratekeeper token revoke break-glass --local --data-dir /var/lib/ratekeeper")]
    Revoke {
        /// Name of the holder
        name: String,
        #[command(flatten)]
        place: TokenPlace,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The place of tokens.
#[derive(Debug, Args)]
pub(crate) struct TokenPlace {
    /// Quota database of the services [default: the `quotas` setting]
    #[arg(long, value_name = "WHERE")]
    pub(crate) quotas: Option<String>,
    /// Data folder of the service [default: the `data_dir` setting]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<String>,
    /// Tokens of the node of the data folder alone, which count whatever the quota database says
    #[arg(long)]
    pub(crate) local: bool,
    /// Settings file with those two [default: as for `serve`]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
