//! Texts in etcd: under a key, or under all keys below it.
//!
//! etcd tells of changes at once; in between, the texts are read again each interval, so that nothing is missed for longer.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use ratekeeper_proto::etcdserverpb::auth_client::AuthClient;
use ratekeeper_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use ratekeeper_proto::etcdserverpb::kv_client::KvClient;
use ratekeeper_proto::etcdserverpb::request_op::Request as Operation;
use ratekeeper_proto::etcdserverpb::watch_client::WatchClient;
use ratekeeper_proto::etcdserverpb::watch_request::RequestUnion;
use ratekeeper_proto::etcdserverpb::{
    AuthenticateRequest, Compare, DeleteRangeRequest, PutRequest, RangeRequest, RangeResponse,
    RequestOp, TxnRequest, WatchCreateRequest, WatchRequest, WatchResponse,
};
use ratekeeper_rules::Source;
use ratekeeper_tls::TlsFiles;
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt as _;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

use crate::fetch_error::{FetchError, PATIENCE, TEXT_BYTES_MAX, TEXTS_MAX};
use crate::grpc_connection::{GrpcConnection, describe};
use crate::texts::{NewTexts, source};

/// The pause after etcd has given up telling of changes, before it is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// The port of etcd, unless the URL names another.
const PORT: u16 = 2379;

/// The most members that a URL may name.
const MEMBERS_MAX: usize = 16;

/// The most comparisons of a transaction, as etcd is set up by default. Of a folder with more texts, all changes are
/// noticed, and deletions of the first ones.
const COMPARISONS_MAX: usize = 128;

/// Keys of etcd, and how to read them.
#[derive(Clone, Debug)]
pub struct EtcdConfig {
    /// `http://HOST:PORT` of each member, or `https://`.
    members: Vec<String>,
    server_name: Option<String>,
    tls: TlsFiles,
    login: Option<Login>,
    /// The key; one that ends in `/` means all keys below it.
    key: String,
    name: String,
}

/// A user and a password.
#[derive(Clone)]
struct Login {
    user: String,
    password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// The fault of a URL of etcd. Does not repeat it: it may have a password in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "this is not a place of rules in etcd; write etcd://HOST:PORT/KEY, or etcds:// for TLS; with a / at its end the key \
     means all keys below it"
)]
pub struct BadEtcdUrl;

impl EtcdConfig {
    /// The keys that `url` names. `name` is the URL without secrets.
    ///
    /// # Errors
    /// It names no member of etcd, or no key.
    pub fn new(
        url: &str,
        name: String,
        server_name: Option<String>,
        tls: TlsFiles,
    ) -> Result<Self, BadEtcdUrl> {
        let (scheme, rest) = match url.split_once("://").ok_or(BadEtcdUrl)? {
            ("etcd", rest) => ("http", rest),
            ("etcds", rest) => ("https", rest),
            _ => return Err(BadEtcdUrl),
        };
        // A password may have any character that is escaped; no host has an @.
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (Some(Login::new(login)?), rest),
            None => (None, rest),
        };
        let (hosts, key) = rest.split_once('/').ok_or(BadEtcdUrl)?;
        let members: Option<Vec<String>> =
            hosts.split(',').map(|host| member(scheme, host)).collect();
        let members = members.filter(|members| members.len() <= MEMBERS_MAX);
        let config = Self {
            members: members.ok_or(BadEtcdUrl)?,
            server_name,
            tls,
            login,
            key: decoded(key)
                .filter(|key| !key.is_empty())
                .ok_or(BadEtcdUrl)?,
            name,
        };
        let are_good = config
            .members
            .iter()
            .all(|it| config.connection(it).is_some());
        are_good.then_some(config).ok_or(BadEtcdUrl)
    }

    /// The key and its members, without secrets.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    fn connection(&self, member: &str) -> Option<GrpcConnection> {
        GrpcConnection::new(member, self.server_name.as_deref(), &self.tls)
    }

    /// Returns true if the key means all keys below it.
    fn is_folder(&self) -> bool {
        self.key.ends_with('/')
    }

    /// The first key that is not meant; empty for one key.
    fn end(&self) -> Vec<u8> {
        match self.key.strip_suffix('/') {
            // The character after the slash.
            Some(above) => format!("{above}0").into_bytes(),
            None => Vec::new(),
        }
    }

    /// The whole key of a text.
    fn key_of(&self, name: &str) -> Vec<u8> {
        match self.is_folder() {
            true => format!("{}{name}", self.key).into_bytes(),
            false => self.key.clone().into_bytes(),
        }
    }
}

impl Login {
    fn new(text: &str) -> Result<Self, BadEtcdUrl> {
        let (user, password) = text.split_once(':').ok_or(BadEtcdUrl)?;
        Ok(Self {
            user: decoded(user).ok_or(BadEtcdUrl)?,
            password: decoded(password).ok_or(BadEtcdUrl)?,
        })
    }
}

fn decoded(text: &str) -> Option<String> {
    let text = percent_decode_str(text).decode_utf8().ok()?;
    Some(text.into_owned())
}

/// The address of a member, with its port.
fn member(scheme: &str, host: &str) -> Option<String> {
    let has_port = host.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
    });
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
    let is_good = !host.is_empty() && !host.starts_with(':') && host.chars().all(is_host);
    is_good.then(|| match has_port {
        true => format!("{scheme}://{host}"),
        false => format!("{scheme}://{host}:{PORT}"),
    })
}

/// Keys that are read whenever they change.
#[derive(Debug)]
pub(crate) struct EtcdPlace {
    config: EtcdConfig,
    /// The member that is asked, counted round and round.
    member: usize,
    open: Option<Open>,
    /// The revision of the texts that were read last.
    revision: i64,
}

/// An open connection.
#[derive(Debug)]
struct Open {
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
    /// The changes since the texts were read, as etcd tells them.
    changes: Option<Streaming<WatchResponse>>,
}

impl EtcdPlace {
    pub(crate) const fn new(config: EtcdConfig) -> Self {
        Self {
            config,
            member: 0,
            open: None,
            revision: 0,
        }
    }

    /// Reads all texts. If there are none, the rules are thought to be lost, not taken back.
    pub(crate) async fn fetch(&mut self) -> Result<Vec<Source>, FetchError> {
        let read = self.ask().await?;
        if read.more || read.kvs.len() > TEXTS_MAX {
            return Err(FetchError::TooMany);
        }
        self.revision = read.header.unwrap_or_default().revision;
        let prefix = match self.config.is_folder() {
            true => self.config.key.len(),
            false => 0,
        };
        let texts: Vec<_> = read
            .kvs
            .into_iter()
            // A key that is a folder in other tools has no text.
            .filter(|pair| pair.key.len() > prefix)
            .map(|pair| source(pair.key.get(prefix..).unwrap_or_default(), pair.value))
            .collect::<Result<_, _>>()?;
        if texts.is_empty() {
            let place = if prefix > 0 { "below " } else { "" };
            return Err(FetchError::Gone(format!("{place}{}", self.config.key)));
        }
        self.watch().await;
        Ok(texts)
    }

    /// Waits for a change, for up to `interval`.
    pub(crate) async fn changed(&mut self, interval: Duration) {
        let changes = self.open.as_mut().and_then(|open| open.changes.as_mut());
        let Some(changes) = changes else {
            return sleep(interval).await;
        };
        let told = async {
            while let Some(Ok(told)) = changes.next().await {
                if told.canceled {
                    return false;
                }
                if !told.events.is_empty() {
                    return true;
                }
            }
            false
        };
        if timeout(interval, told).await == Ok(false) {
            if let Some(open) = &mut self.open {
                open.changes = None;
            }
            sleep(PAUSE.min(interval)).await;
        }
    }

    /// Puts `texts` in place of `before`, in one transaction, unless others have changed something since they were read.
    pub(crate) async fn replace(
        &mut self,
        before: &[Source],
        texts: NewTexts,
    ) -> Result<(), FetchError> {
        let texts = match (texts, self.config.is_folder()) {
            (NewTexts::One(text), false) => vec![Source {
                name: self.config.key.clone(),
                text,
            }],
            (NewTexts::Many(texts), true) => texts,
            (NewTexts::One(_), true) => return Err(FetchError::ManyTexts),
            (NewTexts::Many(_), false) => return Err(FetchError::OneText),
        };
        let transaction = self.transaction(before, &texts);
        let open = self.opened().await?;
        let mut client = KvClient::new(open.channel.clone());
        let asked = timeout(PATIENCE, client.txn(open.request(transaction))).await;
        let done = asked.map_err(|_| FetchError::Timeout)?.map_err(refused)?;
        done.into_inner()
            .succeeded
            .then_some(())
            .ok_or(FetchError::Changed)
    }

    fn transaction(&self, before: &[Source], texts: &[Source]) -> TxnRequest {
        let config = &self.config;
        let mut success = Vec::new();
        let mut operation = |request| {
            success.push(RequestOp {
                request: Some(request),
            })
        };
        for text in texts.iter().filter(|text| !before.contains(text)) {
            operation(Operation::RequestPut(PutRequest {
                key: config.key_of(&text.name),
                value: text.text.clone().into_bytes(),
            }));
        }
        for gone in before
            .iter()
            .filter(|it| texts.iter().all(|text| text.name != it.name))
        {
            operation(Operation::RequestDeleteRange(DeleteRangeRequest {
                key: config.key_of(&gone.name),
                range_end: Vec::new(),
            }));
        }
        TxnRequest {
            compare: self.unchanged(before),
            success,
            failure: Vec::new(),
        }
    }

    /// The comparisons that hold while nothing has changed since `before` was read.
    fn unchanged(&self, before: &[Source]) -> Vec<Compare> {
        let config = &self.config;
        let compare = |result: CompareResult, key, revision, range_end| Compare {
            result: result.into(),
            target: CompareTarget::Mod.into(),
            key,
            target_union: Some(TargetUnion::ModRevision(revision)),
            range_end,
        };
        let last = self.revision.saturating_add(1);
        let key = config.key.clone().into_bytes();
        let no_other = compare(CompareResult::Less, key, last, config.end());
        // A key that was deleted has no revision, so that the range alone does not show it.
        let all_there = before.iter().take(COMPARISONS_MAX - 1).map(|text| {
            let key = config.key_of(&text.name);
            compare(CompareResult::Greater, key, 0, Vec::new())
        });
        [no_other].into_iter().chain(all_there).collect()
    }

    /// Asks for all keys and their texts; once more over a new connection if the kept one fails.
    async fn ask(&mut self) -> Result<RangeResponse, FetchError> {
        if self.open.is_some()
            && let Ok(read) = self.ask_once().await
        {
            return Ok(read);
        }
        self.open = None;
        let read = self.ask_once().await;
        if read.is_err() {
            self.open = None;
            self.member = self.member.wrapping_add(1);
        }
        read
    }

    async fn ask_once(&mut self) -> Result<RangeResponse, FetchError> {
        let request = RangeRequest {
            key: self.config.key.clone().into_bytes(),
            range_end: self.config.end(),
            limit: i64::try_from(TEXTS_MAX).unwrap_or(i64::MAX),
        };
        let read = async {
            let open = self.opened().await?;
            let mut client =
                KvClient::new(open.channel.clone()).max_decoding_message_size(TEXT_BYTES_MAX);
            let read = client.range(open.request(request)).await.map_err(refused)?;
            Ok(read.into_inner())
        };
        timeout(PATIENCE, read)
            .await
            .unwrap_or(Err(FetchError::Timeout))
    }

    /// The connection; logs in if it is a new one.
    async fn opened(&mut self) -> Result<&mut Open, FetchError> {
        let open = match self.open.take() {
            Some(open) => open,
            None => self.connect().await?,
        };
        Ok(self.open.insert(open))
    }

    async fn connect(&self) -> Result<Open, FetchError> {
        let members = &self.config.members;
        let member = members.get(self.member % members.len().max(1));
        let connection = member.and_then(|member| self.config.connection(member));
        // The address was good when it was parsed.
        let connection = connection.ok_or_else(|| FetchError::Etcd(BadEtcdUrl.to_string()))?;
        let channel = connection.open().await.map_err(FetchError::Etcd)?;
        let mut open = Open {
            channel,
            token: None,
            changes: None,
        };
        if let Some(login) = &self.config.login {
            let request = AuthenticateRequest {
                name: login.user.clone(),
                password: login.password.clone(),
            };
            let mut client = AuthClient::new(open.channel.clone());
            let answer = client.authenticate(request).await.map_err(refused)?;
            let token = answer.into_inner().token.parse();
            open.token =
                Some(token.map_err(|_| FetchError::Etcd("its token cannot be sent".into()))?);
        }
        Ok(open)
    }

    /// Asks to be told of changes, unless that is so. Without it, the texts are read each interval.
    async fn watch(&mut self) {
        let create = WatchCreateRequest {
            key: self.config.key.clone().into_bytes(),
            range_end: self.config.end(),
            start_revision: self.revision.saturating_add(1),
        };
        let Some(open) = self.open.as_mut().filter(|open| open.changes.is_none()) else {
            return;
        };
        let create = WatchRequest {
            request_union: Some(RequestUnion::CreateRequest(create)),
        };
        // etcd ends the watch when there can be no more requests.
        let requests = tokio_stream::once(create).chain(tokio_stream::pending());
        let mut client =
            WatchClient::new(open.channel.clone()).max_decoding_message_size(TEXT_BYTES_MAX);
        let watching = timeout(PATIENCE, client.watch(open.request(requests))).await;
        open.changes = match watching {
            Ok(Ok(changes)) => Some(changes.into_inner()),
            _ => None,
        };
    }
}

impl Open {
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it maps errors")]
fn refused(status: Status) -> FetchError {
    FetchError::Etcd(describe(&status))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<EtcdConfig, BadEtcdUrl> {
        EtcdConfig::new(url, "shown".to_owned(), None, TlsFiles::default())
    }

    #[test]
    fn a_url_names_members_and_a_key() {
        let one = config("etcd://127.0.0.1:2379/rules.yaml").expect("it is good");
        assert_eq!((&*one.key, one.end()), ("rules.yaml", Vec::new()));
        let many = config("etcds://u:p%40ss@a,[::1],b:1//api/rules/").expect("it is good");
        assert_eq!(
            many.members,
            ["https://a:2379", "https://[::1]:2379", "https://b:1"]
        );
        assert_eq!(
            (&*many.key, many.end()),
            ("/api/rules/", b"/api/rules0".to_vec())
        );
        let login = many.login.as_ref().expect("there is one");
        assert_eq!((&*login.user, &*login.password), ("u", "p@ss"));
        assert!(!format!("{many:?}").contains("p@ss"));
        for bad in [
            "etcd://127.0.0.1:2379",
            "etcd://127.0.0.1:2379/",
            "etcd:///rules",
            "etcd://a b/rules",
            "etcd://user@a/rules",
            "http://a/rules",
        ] {
            assert_eq!(config(bad).map(drop), Err(BadEtcdUrl), "{bad}");
        }
    }
}
