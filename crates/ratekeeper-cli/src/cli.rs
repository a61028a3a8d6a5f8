//! The command line: commands, flags and their help.

mod admin;
mod bad_argument;
mod bench;
mod quota;
mod reading;
mod rules_files;

pub(crate) use admin::{
    AdminAccess, AdminCredentials, DenialKind, Denials, NodesArgs, RulesList, SwitchArgs, Token,
    TokenPlace, Top, Usage, Why,
};
pub(crate) use bad_argument::BadArgument;
pub(crate) use bench::{Bench, BenchLoad, BenchQuestion};
pub(crate) use quota::{
    Audit, AuditExport, AuditList, AuditVerify, DatabaseFlags, Quota, QuotaDelete, QuotaExport,
    QuotaImport, QuotaList, QuotaRevert, QuotaSet, QuotaUsage, TenantArgs, TenantsForm, UsageBy,
};
use reading::{Reading, ReadingBySettings};
pub(crate) use rules_files::{FailOn, RulesDiff, RulesTest};

use crate::settings::{self, CommandFlags, Environment};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use ratekeeper_replay::CostWeights;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  ratekeeper                                    serve ./config, and print three commands to try
  ratekeeper serve --rules rules/ --http :8080  serve a folder of rules
  ratekeeper gateway --upstream http://127.0.0.1:3000   limit what reaches a service
  ratekeeper rules check rules/                 validate rules (exit 0 valid, 1 not)
  ratekeeper rules explain --rules rules/ api api_key=abc,path=/login
  ratekeeper replay --rules rules/ --log access.log.gz
  ratekeeper bench grpc --keys zipf:100000      measure a running service";

/// For a screen that has to hold the flags of `serve` as well.
const FIRST_EXAMPLES: &str = "\
Examples:
  ratekeeper                                    serve ./config, and print three commands to try";

const CODES: &str = "\
Exit codes: 0 success, 1 failure (see the message), 2 invalid command line.
Precedence of settings: ratekeeper.yaml < RATEKEEPER_* < flags; `ratekeeper config show` prints each value and its source.";

/// Rate limiting for APIs: rules in YAML, decisions over gRPC and HTTP.
#[derive(Debug, Parser)]
#[command(name = "ratekeeper", version, after_help = FIRST_EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{CODES}"), args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// A bare `ratekeeper` is `ratekeeper serve`.
    #[command(flatten)]
    pub(crate) serve: CommandFlags<false>,
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
    Serve(CommandFlags<false>),
    /// Run a reverse proxy that limits requests before it forwards them
    #[command(after_help = "\
Examples:
  ratekeeper gateway --upstream http://127.0.0.1:3000        listen on :8082, limit and forward
  ratekeeper gateway --listen :80 --upstream h2c://app:50051 gRPC
  ratekeeper gateway --config gateway.yaml                   routes to several upstreams by host and path

It opens --listen and --admin; with --grpc and --http it serves checks as well. Rules and routes reload when files change.
SIGTERM and Ctrl-C drain: requests in flight are answered first.")]
    Gateway(CommandFlags<true>),
    /// Check and explain rules
    #[command(subcommand)]
    Rules(Rules),
    /// Replay an access log through rules, and report what they would have denied
    Replay(Replay),
    /// Change the regions that share limits
    #[command(subcommand)]
    Regions(Regions),
    /// Load-test a running service, and report rates and latencies
    #[command(subcommand)]
    Bench(Bench),
    /// Show settings
    #[command(subcommand)]
    Config(Config),
    /// Hash secrets for use in files
    #[command(subcommand)]
    Key(Key),
    /// Manage tenants' plans and limits in the quota database
    #[command(subcommand)]
    Quota(Quota),
    /// Reset a tenant's usage to zero
    #[command(after_help = "\
Examples:
  ratekeeper reset acme")]
    Reset(TenantArgs),
    /// List, export and verify changes to tenants' quotas
    #[command(subcommand)]
    Audit(Audit),
    /// Create, list and revoke tokens for the admin API
    #[command(subcommand)]
    Token(Token),
    /// Plan the move from envoyproxy/ratelimit or an Envoy Gateway that runs it
    #[command(after_help = "\
Reads variables (NAME=VALUE lines, as `env` prints them) or YAML that has them: Helm values, a Deployment, a compose file, the configuration of an Envoy Gateway. It prints our settings, what differs, which counters start afresh, and the steps. Nothing is changed.

With --check it asks both services, by looks that charge nothing, which limit they have for each rule. Traffic may go on.

Exit codes: 0 nothing stands in the way, 1 something does, or the answers differ; 2 invalid command line.

Examples:
  kubectl exec deploy/ratelimit -- env > theirs.env
  ratekeeper migrate theirs.env --rules config/
  ratekeeper migrate values.yaml --rules config/ > plan.md
  ratekeeper migrate --rules config/ --check http://ratelimit:8080 http://ratekeeper:8080")]
    Migrate(Migrate),
    /// Tell if a running service is ready: exit code 0 if it is, else 1
    #[command(after_help = "\
For probes of containers, whose images have no other HTTP client. Without a URL it asks the HTTP listener of a service with the same settings, on this host, or the admin listener of a gateway that has no other.

Examples:
  ratekeeper health
  ratekeeper health --quiet 127.0.0.1:8080
  ratekeeper health --ca ca.pem https://ratekeeper.internal:8080")]
    Health(Health),
    /// Watch a running node, second by second
    #[command(after_help = "\
In a terminal: decisions a second, who is denied most, health, and rules; q quits, up and down scroll the rules. Into a pipe, or with --once: the state of one second as text, or as JSON with --json.

Examples:
  ratekeeper top
  ratekeeper top --admin http://10.0.0.7:6070 --admin http://10.0.0.8:6070 --token-file token.txt
  ratekeeper top --once --json | jq .second")]
    Top(Top),
    /// List the nodes that share a quota database: versions, rules, and tokens in force
    #[command(after_help = "\
Nodes with the same RULES have the same rules in force, those with the same TOKENS accept and refuse the same tokens. A node is `away` once it has not reported for 15 seconds: it has stopped without a goodbye, or cannot reach the database.

Examples:
  ratekeeper nodes
  ratekeeper nodes --json | jq -r '.nodes[] | select(.state == \"away\") | .node'")]
    Nodes(NodesArgs),
    /// Show why a tenant is denied, and what to do about it
    #[command(after_help = "\
The denials are those of the last hour, on all nodes that share their counters. A tenant may be named by its value, its fingerprint, `hash:` and its keyed hash, or its last characters.

Examples:
  ratekeeper why acme
  ratekeeper why '*x4f2'                 the key that ends in x4f2
  ratekeeper why < key.txt               a secret, in no list of processes and no history
  ratekeeper why acme --json | jq -r .summary")]
    Why(Why),
    /// List who was denied in the last hour, and the latest denied requests
    #[command(after_help = "\
Examples:
  ratekeeper denials
  ratekeeper denials acme --follow
  ratekeeper denials --kind would-be-denied     whom rules in shadow would deny
  ratekeeper denials --rule api.login --json | jq '.groups[].tenant'")]
    Denials(Denials),
    /// Show a tenant's usage of its limits
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
        /// Shell to write the script for
        shell: Shell,
    },
    /// Write the man pages, one for each command
    // Hidden: whoever makes a package finds it in the manual, and the list of commands fits a screen.
    #[command(
        hide = true,
        after_help = "\
Examples:
  ratekeeper man /usr/local/share/man/man1
  ratekeeper man man1 && man ./man1/ratekeeper-rules-check.1"
    )]
    Man {
        /// Folder for the pages; it is created
        folder: PathBuf,
    },
}

/// The commands about rules.
#[derive(Debug, Subcommand)]
pub(crate) enum Rules {
    /// Validate rules, and report every error with file, line and column
    #[command(after_help = "\
Exit codes: 0 valid (warnings are printed), 1 invalid, 2 invalid command line.

Examples:
  ratekeeper rules check rules/
  ratekeeper rules check a.yaml b.yaml --merge-domains
  ratekeeper rules check rules/ --json | jq '.rules[] | select(.mode != \"enforced\")'")]
    Check(RulesCheck),
    /// Run tests of rules: requests at given times, and the answers that they should get
    #[command(after_help = rules_files::TEST_HELP)]
    Test(Box<RulesTest>),
    /// Compare two sets of rules: which limits are new, removed or changed, and which counters start afresh
    #[command(after_help = rules_files::DIFF_HELP)]
    Diff(Box<RulesDiff>),
    /// Show which limits apply to a request and what each would answer, without charging it
    #[command(after_help = "\
With --admin, a running service answers from its live counters; otherwise rules are read from files, and counters start empty. With --admin, --request asks its load shedders alone: name descriptors to ask its limits. An entry is key=value; write a comma in a value as \\, and a backslash as \\\\.

Examples:
  ratekeeper rules explain --rules rules/ api api_key=abc,path=/login
  ratekeeper rules explain --rules rules/ api api_key=abc remote_address=192.0.2.7
  ratekeeper rules explain --rules slas.yaml --request 'GET /product/7' --header 'x-api-key: abc'
  ratekeeper rules explain --admin http://127.0.0.1:6070 api api_key=abc,path=/login
  ratekeeper rules explain --admin http://127.0.0.1:6070 --request 'GET /product/7'   is it shed now?")]
    Explain(Box<RulesExplain>),
    /// List the rules of a running service, with their switches and counts
    #[command(after_help = "\
Examples:
  ratekeeper rules list
  ratekeeper rules list --switched --admin http://10.0.0.7:6070")]
    List(RulesList),
    /// Enable a rule of a running service, even if its file disables it
    Enable(SwitchArgs),
    /// Disable a rule of a running service: it takes no part in decisions
    #[command(after_help = "\
The switch takes effect at the next request. Until `rules enable` or `rules restore` it survives reloads and, with --data-dir, restarts.

Examples:
  ratekeeper rules disable 'api.api_key.endpoint_POST /orders'")]
    Disable(SwitchArgs),
    /// Put a rule of a running service in shadow mode: decided and counted, not enforced
    Shadow(SwitchArgs),
    /// Remove the switch of a rule: its file applies again
    Restore(SwitchArgs),
    /// Publish the limits as a document for users of the API
    #[command(after_help = "\
Disabled and shadow limits are left out; secrets become fingerprints.

Examples:
  ratekeeper rules publish --rules rules/ > LIMITS.md
  ratekeeper rules publish --rules rules/ --format html --title 'Limits of the shop API' > limits.html")]
    Publish(RulesPublish),
    /// Fetch the rules from a URL, Redis or etcd
    #[command(after_help = "\
Prints a single text; several go to a folder. They are not checked. The settings `rules_ca`, `rules_token` and their like hold.

Examples:
  ratekeeper rules pull https://rules.example.com/api.yaml
  ratekeeper rules pull 'redis://127.0.0.1/0?key=ratelimit:rules' --to rules
  ratekeeper rules pull etcd://127.0.0.1:2379/ratelimit/rules/ --to rules")]
    Pull(RulesPull),
    /// Check rules, and put them into Redis or etcd, from where services fetch them
    #[command(after_help = "\
A file becomes the value of the key. A folder becomes a hash in Redis with a field a file, or a key a file in etcd; what is there beside it is removed. Services see all of it or nothing. A rule with an error is not pushed.

Exit codes: 0 pushed, 1 not pushed, 2 invalid command line.

Examples:
  ratekeeper rules push rules/ 'redis://127.0.0.1/0?key=ratelimit:rules'
  ratekeeper rules push rules/ etcd://127.0.0.1:2379/ratelimit/rules/ --dry-run
  ratekeeper rules push api.yaml etcd://127.0.0.1:2379/ratelimit/api.yaml")]
    Push(RulesPush),
    /// Print the JSON Schema of rules files, for editors
    #[command(after_help = "\
Examples:
  ratekeeper rules schema > ratekeeper.schema.json
  ratekeeper rules schema --tests > ratekeeper-tests.schema.json
  then, as the first line of a rules file:  # yaml-language-server: $schema=ratekeeper.schema.json")]
    Schema {
        /// Print that of files of tests instead
        #[arg(long)]
        tests: bool,
    },
}

/// The commands about regions.
#[derive(Debug, Subcommand)]
pub(crate) enum Regions {
    /// Give the share of a region that is gone for good to the others
    #[command(after_help = "\
Run it beside the settings of a node that is left. It refuses while the region answers at one of its addresses, and until nothing that it admitted or lent before can be in use any more. Then it writes the settings file, or prints what to write, for all nodes that are left; shares only grow, so they may be restarted in any order.

Exit codes: 0 retired, 1 not (the message says why, and when), 2 invalid command line.

Examples:
  ratekeeper regions retire ap --since 2026-11-26T12:00:00Z
  ratekeeper regions retire ap --config /etc/ratekeeper/ratekeeper.yaml --rules /etc/ratekeeper/rules")]
    Retire(RegionsRetire),
}

#[derive(Debug, Args)]
pub(crate) struct RegionsRetire {
    /// Name of the region
    pub(crate) name: String,
    /// Settings file [default: ratekeeper.yaml]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Time at which the region stopped to admit requests [default: now]
    #[arg(long, value_name = "TIME", value_parser = ratekeeper_rules::time::parse)]
    pub(crate) since: Option<ratekeeper_core::Timestamp>,
    /// Rules that regions share [default: the `rules` setting]
    #[arg(long, value_name = "PATH")]
    pub(crate) rules: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RulesCheck {
    /// Files, or folders of *.yaml and *.yml
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: Reading,
    /// Settings file that `serve` reads the rules by: its `profile`, `merge_domains`, `slas_base`, `tenants`, `stores` and more.
    /// Flags win
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Tenants to check with the rules: a file, or a folder of *.yaml and *.yml [default: the `tenants` setting of --config]
    #[arg(long, value_name = "PATH")]
    pub(crate) tenants: Option<PathBuf>,
    /// Print only problems
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// Print JSON: errors and warnings with their places, and the rules
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RulesPublish {
    /// File, or folder of *.yaml and *.yml
    #[arg(long, value_name = "PATH")]
    pub(crate) rules: PathBuf,
    /// Format of the document
    #[arg(long, value_name = "NAME", default_value = "md")]
    pub(crate) format: SlaForm,
    /// Heading of the document [default: Service level agreement]
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

#[derive(Debug, Args)]
pub(crate) struct Migrate {
    /// Variables or YAML of the service to replace
    #[arg(value_name = "FILE", required_unless_present_any = ["rules", "check"])]
    pub(crate) source: Option<PathBuf>,
    /// Rules of that service: a file, or a folder of *.yaml and *.yml
    #[arg(long, value_name = "PATH")]
    pub(crate) rules: Option<PathBuf>,
    /// Ask both services for each rule, over HTTP (/json)
    #[arg(long, num_args = 2, value_names = ["THEIRS", "OURS"], requires = "rules")]
    pub(crate) check: Vec<String>,
    /// Authorities that verify certificates of https:// services, as PEM [default: the system's]
    #[arg(long, value_name = "FILE", requires = "check")]
    pub(crate) ca: Option<PathBuf>,
    /// Merge files that name the same domain
    #[arg(long)]
    pub(crate) merge_domains: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RulesPull {
    /// Place of the rules: https://, redis:// or etcd:// [default: the `rules` setting]
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Folder for the texts, one file each; it is created
    #[arg(long, value_name = "FOLDER")]
    pub(crate) to: Option<PathBuf>,
    /// Overwrite files that differ; local files that no longer exist at the source are listed, and no error
    #[arg(long, requires = "to")]
    pub(crate) force: bool,
    /// Settings file [default: as for `serve`]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RulesPush {
    /// File, or folder of *.yaml and *.yml
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Place to put them: redis:// or etcd:// [default: the `rules` setting]
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Show what would change, and push nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Settings file [default: as for `serve`]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
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
    /// Rules to read [default: the `rules` setting]
    #[arg(long, value_name = "PATH", conflicts_with = "address")]
    pub(crate) rules: Option<PathBuf>,
    /// Settings file, for `auth` and `identity` [default: as for `serve`]
    #[arg(long, value_name = "FILE", conflicts_with = "address")]
    pub(crate) config: Option<PathBuf>,
    /// Admin address of a running service
    // `--address` is its name of old.
    #[arg(
        long = "admin",
        alias = "address",
        value_name = "URL",
        conflicts_with = "slas_base"
    )]
    pub(crate) address: Option<String>,
    #[command(flatten)]
    pub(crate) credentials: AdminCredentials,
    #[command(flatten)]
    pub(crate) reading: ReadingBySettings,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// HTTP request in place of descriptors, such as `GET /product/7`; the `auth` and `identity` settings turn it into
    /// descriptors. With --admin: show only what the load shedders of a running gateway would do with it now
    #[arg(long, value_name = "METHOD PATH", conflicts_with = "descriptors")]
    pub(crate) request: Option<String>,
    /// Header of that request; repeatable
    #[arg(long = "header", value_name = "NAME: VALUE", requires = "request")]
    pub(crate) headers: Vec<String>,
    /// Address of the client [default: 127.0.0.1]
    #[arg(long, value_name = "ADDR", requires = "request")]
    pub(crate) client: Option<std::net::IpAddr>,
    /// Domain of the request
    #[arg(required_unless_present = "request")]
    pub(crate) domain: Option<String>,
    /// Entries of a descriptor, in order: key=value,key=value; several descriptors form one request
    #[arg(value_name = "KEY=VALUE,…", required_unless_present = "request")]
    pub(crate) descriptors: Vec<String>,
}

/// The commands about secrets.
#[derive(Debug, Subcommand)]
pub(crate) enum Key {
    /// Print hashes of tenants' API keys, for `tenants:` in files
    #[command(after_help = "\
Reads one key per line from standard input, so that no key shows in the list of processes. Use the `tenant_key` of the service.

Examples:
  openssl rand -hex 16                                 a new tenant_key
  RATEKEEPER_TENANT_KEY=… ratekeeper key hash < keys.txt")]
    Hash {
        /// Settings file with the `tenant_key` [default: as for `serve`]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Print every setting, its value and its source
    #[command(after_help = "\
Accepts the flags of `ratekeeper serve` and `ratekeeper gateway`, so that you can try a command line.

Examples:
  ratekeeper config show
  RATEKEEPER_HTTP=:9000 ratekeeper config show --profile envoy")]
    Show {
        #[command(flatten)]
        flags: CommandFlags<true>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The service to ask.
#[derive(Debug, Args)]
pub(crate) struct Health {
    /// HTTP or admin listener: http://HOST:PORT, https://HOST:PORT, HOST:PORT or unix:/PATH
    pub(crate) url: Option<String>,
    /// Settings file of the service [default: ratekeeper.yaml in ., ./config or /etc/ratekeeper, if there is one]
    #[arg(long, value_name = "PATH")]
    pub(crate) config: Option<PathBuf>,
    /// With https://: CA certificates that verify the service, as PEM [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Ask only if the node lives (/livez), whether or not it is ready: for probes that restart what fails
    #[arg(long)]
    pub(crate) alive: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Each line becomes the descriptors that a gateway would build from the request by the `auth` and `identity` settings (by default one each for remote_address, api_key, method and path), and is decided at its time in the log. Lines without a timestamp and an address are skipped and counted as malformed. --descriptors builds descriptors from the log's fields instead: field, key=field, or key='text {field}'.

Examples:
  ratekeeper replay --rules rules/ --log access.log.gz
  ratekeeper replay --rules rules/ --log access.log --descriptors 'remote_address; api_key=remote_address,path'
  ratekeeper replay --rules rules/ --log app.jsonl --fields time=ts,remote_address=client.ip --json
  ratekeeper replay --rules rules/ --log access.log --compare sliding_log
  ratekeeper replay --rules slas.yaml --log access.log      service levels, by method and path
  ratekeeper replay --config gateway.yaml --rules rules/ --log access.log
  ratekeeper replay --rules budgets.yaml --log calls.csv --cost --descriptors user,model")]
pub(crate) struct Replay {
    /// Rules to replay the log through
    #[arg(long, value_name = "PATH")]
    pub(crate) rules: PathBuf,
    /// Logs, replayed oldest first: common, combined or JSON lines, plain or gzip; - is standard input
    #[arg(long = "log", value_name = "FILE", required = true, num_args = 1..)]
    pub(crate) logs: Vec<PathBuf>,
    /// Settings file, for `auth`, `identity` and `trusted_proxies` [default: as for `serve`]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Domain of the requests [default: that of the `auth` setting, else the only one]
    #[arg(long)]
    pub(crate) domain: Option<String>,
    /// Format of the log [default: detected from its first lines]
    #[arg(long, value_name = "NAME", value_parser = ["common", "combined", "json"])]
    pub(crate) format: Option<String>,
    /// Descriptors of each line, in place of those of the settings: entry,entry;entry
    #[arg(long, value_name = "TEXT")]
    pub(crate) descriptors: Option<String>,
    /// Paths of fields in JSON lines: time=ts,remote_address=ip,header:x-api-key=key,…
    #[arg(long, value_name = "NAME=FIELD,…")]
    pub(crate) fields: Option<String>,
    /// Also decide by this exact algorithm, and count the decisions that differ
    #[arg(long, value_name = "ALGORITHM", value_parser = ["sliding_log"])]
    pub(crate) compare: Option<String>,
    /// Charge the tokens of calls of language models to budgets: CSV with TIMESTAMP, ContextTokens, GeneratedTokens
    #[arg(long, conflicts_with_all = ["format", "fields", "compare", "sort_within"])]
    pub(crate) cost: bool,
    #[command(flatten)]
    pub(crate) costs: ReplayCosts,
    #[command(flatten)]
    pub(crate) reading: ReadingBySettings,
    /// Sort lines that are late by at most this much; 0 keeps the order of the log
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = settings::duration)]
    pub(crate) sort_within: Duration,
    /// Number of most denied keys to print per rule, at most 1,024
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(..=1_024))]
    pub(crate) top: usize,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with 1 if a line is malformed
    #[arg(long)]
    pub(crate) strict: bool,
}

/// The costs of calls of language models.
#[derive(Debug, Args)]
pub(crate) struct ReplayCosts {
    /// With --cost: hits of a token of the prompt, and of the output, where budgets do not tell them apart
    #[arg(long, value_name = "PROMPT:OUTPUT", default_value = "1:1", requires = "cost", value_parser = cost_weights)]
    pub(crate) weights: CostWeights,
    /// With --cost: output tokens that a call reserves, or asks for in advance
    #[arg(long, value_name = "TOKENS", default_value_t = 500, requires = "cost")]
    pub(crate) reserve: u64,
    /// With --cost: output tokens that stream in a second
    #[arg(long, value_name = "TOKENS", default_value_t = 50, requires = "cost", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) speed: u64,
    /// With --cost: deal the calls to so many made-up users, the share of user-k proportional to 1/k
    #[arg(long, value_name = "N", default_value_t = 0, requires = "cost", value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub(crate) users: u32,
}

fn cost_weights(text: &str) -> Result<CostWeights, &'static str> {
    CostWeights::parse(text).ok_or("expected two whole numbers, not both 0: 1:4")
}
