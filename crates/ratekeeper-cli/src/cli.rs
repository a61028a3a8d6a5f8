//! The command line: commands, flags and their help.

mod admin;
mod bench;
mod quota;
mod reading;

pub(crate) use admin::{AdminAccess, RulesList, SwitchArgs, Token, TokenPlace, Top, Usage};
pub(crate) use bench::{Bench, BenchLoad, BenchQuestion};
pub(crate) use quota::{
    Audit, AuditExport, AuditList, DatabaseFlags, Quota, QuotaDelete, QuotaExport, QuotaImport,
    QuotaList, QuotaSet, QuotaUsage, TenantArgs, TenantsForm,
};
use reading::{Reading, ReadingBySettings};

use crate::settings::{self, Environment, Flags, ServeFlags};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  ratekeeper                                    serve ./config, and print three commands to try
  ratekeeper serve --rules rules/ --http :8080  serve a folder of rules
  ratekeeper gateway --upstream http://127.0.0.1:3000   limit what reaches a service
  ratekeeper rules check rules/                 would these rules load? (exit 0 yes, 1 no)
  ratekeeper rules explain --rules rules/ api api_key=abc,path=/login
  ratekeeper replay --rules rules/ --log access.log.gz
  ratekeeper bench grpc --keys zipf:100000      how fast is it here?";

/// For a screen that has to hold the flags of `serve` as well.
const FIRST_EXAMPLES: &str = "\
Examples:
  ratekeeper                                    serve ./config, and print three commands to try
  ratekeeper gateway --upstream http://127.0.0.1:3000   limit what reaches a service";

const CODES: &str = "\
Exit codes: 0 done, 1 refused or failed (the message says why), 2 invalid command line.
Settings: ratekeeper.yaml < RATEKEEPER_* < flags; `ratekeeper config show` prints each value and its source.";

/// Rate limiting for APIs: rules in YAML, decisions over gRPC and HTTP.
#[derive(Debug, Parser)]
#[command(name = "ratekeeper", version, after_help = FIRST_EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{CODES}"), args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// A bare `ratekeeper` is `ratekeeper serve`.
    #[command(flatten)]
    pub(crate) serve: ServeFlags,
}

/// Returns true if an invalid command line asks for a JSON log, by its flag or by the variables that stand for it.
pub(crate) fn asks_for_json(args: impl Iterator<Item = String>) -> bool {
    let args: Vec<String> = args.skip(1).collect();
    let serves = args
        .first()
        .is_none_or(|first| first.starts_with('-') || first == "serve" || first == "gateway");
    let by_flag = args.iter().any(|arg| arg == "--log-format=json")
        || args.windows(2).any(|two| two == ["--log-format", "json"]);
    let by_variable = || {
        let environment = Environment::of_process();
        let variables = ["RATEKEEPER_LOG_FORMAT", "LOG_FORMAT"];
        let value = variables.iter().find_map(|name| environment.get(name));
        value.is_some_and(|value| value.eq_ignore_ascii_case("json"))
    };
    serves && (by_flag || by_variable())
}

/// The commands of ratekeeper.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve rate limit checks over gRPC and HTTP
    #[command(after_help = "\
Examples:
  ratekeeper serve --rules rules/                    gRPC on :8081, HTTP on :8080, admin on 127.0.0.1:6070
  ratekeeper serve --rules r.yaml --http 127.0.0.1:0 port 0 picks a free port and prints it
  ratekeeper serve --profile envoy --merge-domains   as a drop-in for envoyproxy/ratelimit

SIGTERM and Ctrl-C drain: requests in flight are answered first. SIGHUP reloads the rules.")]
    Serve(ServeFlags),
    /// Run a reverse proxy that enforces the rules before it forwards
    #[command(after_help = "\
Examples:
  ratekeeper gateway --upstream http://127.0.0.1:3000        listen on :8082, limit and forward
  ratekeeper gateway --listen :80 --upstream h2c://app:50051 gRPC
  ratekeeper gateway --config gateway.yaml                   routes to several upstreams by host and path

It opens --listen and --admin; --grpc and --http add the service. Rules and routes are reloaded when they are saved.
SIGTERM and Ctrl-C drain: requests in flight are answered first.")]
    Gateway(Flags),
    /// Check and explain rules
    #[command(subcommand)]
    Rules(Rules),
    /// Play an access log through rules and report what they would have denied
    Replay(Replay),
    /// Put load on a running service and report rates and latencies
    #[command(subcommand)]
    Bench(Bench),
    /// Show settings
    #[command(subcommand)]
    Config(Config),
    /// Hash secrets, so that files can name them
    #[command(subcommand)]
    Key(Key),
    /// Give tenants plans and limits of their own, in the quota database
    #[command(subcommand)]
    Quota(Quota),
    /// Forget what a tenant has used: its counters begin anew
    #[command(after_help = "\
Examples:
  ratekeeper reset acme")]
    Reset(TenantArgs),
    /// Show and check the trail of changes to tenants' quotas
    #[command(subcommand)]
    Audit(Audit),
    /// Make, list and revoke tokens for the admin API
    #[command(subcommand)]
    Token(Token),
    /// Show what a running node does, second by second
    #[command(after_help = "\
In a terminal: decisions a second, who is denied most, health, and rules; q quits, up and down scroll the rules. Into a pipe, or with --once: the next second's state as text.

Examples:
  ratekeeper top
  ratekeeper top --admin http://10.0.0.7:6070 --token-file token.txt
  ratekeeper top --once --json | jq .second")]
    Top(Top),
    /// Show how much of its limits a tenant has used
    #[command(after_help = "\
Examples:
  ratekeeper usage abc123
  ratekeeper usage abc123 --descriptor 'endpoint:GET /api/v1/items' --json")]
    Usage(Usage),
    /// Print a shell completion script
    #[command(after_help = "\
Examples:
  ratekeeper completions bash > /etc/bash_completion.d/ratekeeper
  ratekeeper completions zsh > ~/.zfunc/_ratekeeper
  ratekeeper completions fish > ~/.config/fish/completions/ratekeeper.fish")]
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// The commands about rules.
#[derive(Debug, Subcommand)]
pub(crate) enum Rules {
    /// Report every error in rules, with file, line and column
    #[command(after_help = "\
Exit codes: 0 the rules are valid (warnings are printed), 1 they would be refused, 2 invalid command line.

Examples:
  ratekeeper rules check rules/
  ratekeeper rules check a.yaml b.yaml --merge-domains")]
    Check(RulesCheck),
    /// Show which limits apply to a request and what each would answer, without charging it
    #[command(after_help = "\
With --address a running service answers, from its live counters; otherwise the rules are read here, with fresh counters. An entry is key=value; a comma inside a value is written \\, and a backslash \\\\.

Examples:
  ratekeeper rules explain --rules rules/ api api_key=abc,path=/login
  ratekeeper rules explain --rules rules/ api api_key=abc remote_address=192.0.2.7
  ratekeeper rules explain --rules slas.yaml --request 'GET /product/7' --header 'x-api-key: abc'
  ratekeeper rules explain --address http://127.0.0.1:6070 api api_key=abc,path=/login
  ratekeeper rules explain --address http://127.0.0.1:6070 --request 'GET /product/7'   would it be shed now?")]
    Explain(Box<RulesExplain>),
    /// List the rules of a running service, with their switches and counts
    #[command(after_help = "\
Examples:
  ratekeeper rules list
  ratekeeper rules list --switched --admin http://10.0.0.7:6070")]
    List(RulesList),
    /// Switch a rule of a running service on, even if its file disables it
    Enable(SwitchArgs),
    /// Switch a rule of a running service off: it takes no part in any decision
    #[command(after_help = "\
The switch is in force at the next request, and stays until `rules enable` or `rules restore`, over reloads and, with --data-dir, restarts.

Examples:
  ratekeeper rules disable 'api.api_key.endpoint_POST /orders'")]
    Disable(SwitchArgs),
    /// Switch a rule of a running service to shadow mode: decided and counted, not enforced
    Shadow(SwitchArgs),
    /// Take the switch of a rule away: it does what its file says
    Restore(SwitchArgs),
    /// Write the limits for the API's users
    #[command(after_help = "\
Disabled and shadow limits are left out; secrets are fingerprints.

Examples:
  ratekeeper rules publish --rules rules/ > LIMITS.md
  ratekeeper rules publish --rules rules/ --format html --title 'Limits of the shop API' > limits.html")]
    Publish(RulesPublish),
    /// Print the JSON Schema of rules files, for editors
    #[command(after_help = "\
Examples:
  ratekeeper rules schema > ratekeeper.schema.json
  then, as the first line of a rules file:  # yaml-language-server: $schema=ratekeeper.schema.json")]
    Schema,
}

#[derive(Debug, Args)]
pub(crate) struct RulesCheck {
    /// Files, or folders of *.yaml and *.yml
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: Reading,
    /// The settings file whose `stores` the rules may name, and whose `tenant_key` made the tenants' hashes
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Tenants to check with the rules: a file, or a folder of *.yaml and *.yml
    #[arg(long, value_name = "PATH")]
    pub(crate) tenants: Option<PathBuf>,
    /// Print problems and nothing else
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RulesPublish {
    /// A file, or a folder of *.yaml and *.yml
    #[arg(long, value_name = "PATH")]
    pub(crate) rules: PathBuf,
    /// The format
    #[arg(long, value_name = "NAME", default_value = "md")]
    pub(crate) format: SlaForm,
    /// The heading [default: Service level agreement]
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

/// In which form limits are published.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum SlaForm {
    Md,
    Html,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct RulesExplain {
    /// The rules to read here [default: the `rules` setting]
    #[arg(long, value_name = "PATH", conflicts_with = "address")]
    pub(crate) rules: Option<PathBuf>,
    /// The settings file, for `auth` and `identity` [default: as for `serve`]
    #[arg(long, value_name = "FILE", conflicts_with = "address")]
    pub(crate) config: Option<PathBuf>,
    /// The admin address of a running service
    #[arg(long, value_name = "URL", conflicts_with = "slas_base")]
    pub(crate) address: Option<String>,
    /// With an https:// address: authorities to verify it by, as PEM [default: the system's]
    #[arg(long, value_name = "FILE", requires = "address")]
    pub(crate) ca: Option<PathBuf>,
    /// With an https:// address: the client certificate (mTLS), as PEM
    #[arg(long, value_name = "FILE", requires_all = ["address", "key"])]
    pub(crate) cert: Option<PathBuf>,
    /// That certificate's private key, as unencrypted PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: ReadingBySettings,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// An HTTP request instead of descriptors: `GET /product/7`; the settings `auth` and `identity` turn it into descriptors. With
    /// --address: what the load shedders of a running gateway would do with it now
    #[arg(long, value_name = "METHOD PATH", conflicts_with = "descriptors")]
    pub(crate) request: Option<String>,
    /// A header of that request; can be repeated
    #[arg(long = "header", value_name = "NAME: VALUE", requires = "request")]
    pub(crate) headers: Vec<String>,
    /// The client's address [default: 127.0.0.1]
    #[arg(long, value_name = "ADDR", requires = "request")]
    pub(crate) client: Option<std::net::IpAddr>,
    /// The request's domain
    #[arg(required_unless_present = "request")]
    pub(crate) domain: Option<String>,
    /// The entries of a descriptor, in order: key=value,key=value. Several descriptors form one request
    #[arg(value_name = "KEY=VALUE,…", required_unless_present = "request")]
    pub(crate) descriptors: Vec<String>,
}

/// The commands about secrets.
#[derive(Debug, Subcommand)]
pub(crate) enum Key {
    /// Print the hashes of tenants' API keys, by which `tenants:` can name them
    #[command(after_help = "\
Reads one key a line from standard input, so that none of them shows in the list of processes. The `tenant_key` setting has to be the one that the service has.

Examples:
  openssl rand -hex 16                                 a new tenant_key
  RATEKEEPER_TENANT_KEY=… ratekeeper key hash < keys.txt")]
    Hash {
        /// The settings file with the `tenant_key` [default: as for `serve`]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Print every setting, its value and its source
    #[command(after_help = "\
Takes the flags of `ratekeeper serve`, to try a command line.

Examples:
  ratekeeper config show
  RATEKEEPER_HTTP=:9000 ratekeeper config show --profile envoy")]
    Show {
        #[command(flatten)]
        flags: Flags,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Each line becomes the descriptors that a gateway would make of the request, by the settings `auth` and `identity` (by default remote_address, api_key, method, path and user_agent, one each), and goes through the limiter at the log's own time. Lines without a timestamp and an address are counted as malformed and skipped. --descriptors builds descriptors from the log's fields instead: field, key=field, or key='text {field}'.

Examples:
  ratekeeper replay --rules rules/ --log access.log.gz
  ratekeeper replay --rules rules/ --log access.log --descriptors 'remote_address; api_key=remote_address,path'
  ratekeeper replay --rules rules/ --log app.jsonl --fields time=ts,remote_address=client.ip --json
  ratekeeper replay --rules rules/ --log access.log --compare sliding_log
  ratekeeper replay --rules slas.yaml --log access.log      service levels, by method and path
  ratekeeper replay --config gateway.yaml --rules rules/ --log access.log")]
pub(crate) struct Replay {
    /// The rules to try
    #[arg(long, value_name = "PATH")]
    pub(crate) rules: PathBuf,
    /// Logs, oldest first: common, combined or JSON lines, plain or gzip; - is standard input
    #[arg(long = "log", value_name = "FILE", required = true, num_args = 1..)]
    pub(crate) logs: Vec<PathBuf>,
    /// The settings file, for `auth`, `identity` and `trusted_proxies` [default: as for `serve`]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The domain [default: that of the `auth` setting, else the only one]
    #[arg(long)]
    pub(crate) domain: Option<String>,
    /// The log's format [default: detected from its first lines]
    #[arg(long, value_name = "NAME", value_parser = ["common", "combined", "json"])]
    pub(crate) format: Option<String>,
    /// Descriptors of each line, in place of the settings': entry,entry;entry
    #[arg(long, value_name = "TEXT")]
    pub(crate) descriptors: Option<String>,
    /// Paths of fields in JSON lines: time=ts,remote_address=ip,header:x-api-key=key,…
    #[arg(long, value_name = "NAME=FIELD,…")]
    pub(crate) fields: Option<String>,
    /// Also decide exactly, and count the decisions that differ
    #[arg(long, value_name = "ALGORITHM", value_parser = ["sliding_log"])]
    pub(crate) compare: Option<String>,
    #[command(flatten)]
    pub(crate) reading: ReadingBySettings,
    /// Put lines in order that are late by no more than this; 0 takes a log as it stands
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = settings::duration)]
    pub(crate) sort_within: Duration,
    /// Most denied keys to print for each rule
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with 1 if a line is malformed
    #[arg(long)]
    pub(crate) strict: bool,
}
