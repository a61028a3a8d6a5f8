//! The place of tokens: the quota database of all nodes, or the data folder of one.

use super::Listed;
use super::confirmed::Confirmations;
use crate::cli::TokenPlace;
use crate::output;
use crate::quotas;
use crate::settings::{self, Flags, Settings, row};
use anyhow::{Context, Result, anyhow, bail};
use ratekeeper_quota::{DatabaseAddress, Editor, FleetToken, FleetTokenError, QuotaStore};
use ratekeeper_server::{AdminToken, FleetCopy, Role, Tokens};
use std::future::Future;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub(super) enum TokenStore {
    Fleet(Fleet),
    Node(Node),
}

/// The quota database.
pub(super) struct Fleet {
    settings: Box<Settings>,
    address: DatabaseAddress,
}

/// The data folder of one node.
pub(super) struct Node {
    tokens: Tokens,
    folder: PathBuf,
    /// True for tokens that count whatever the database says.
    is_local: bool,
}

impl TokenStore {
    pub(super) fn of(told: &TokenPlace) -> Result<Self> {
        let mut flags = Flags::of_config(told.config.clone());
        for (setting, text) in [
            (&row::quotas, &told.quotas),
            (&row::data_dir, &told.data_dir),
        ] {
            if let Some(text) = text {
                flags = flags.with(setting, text.clone());
            }
        }
        let settings = Box::new(settings::of_process(&flags)?);
        let folder = settings.values.data_dir.clone();
        if told.local {
            let folder = folder.ok_or_else(no_folder)?;
            let tokens = Tokens::local(&folder);
            return Ok(Self::Node(Node {
                tokens,
                folder,
                is_local: true,
            }));
        }
        if let Some(address) = database(&settings, folder.as_deref())? {
            return Ok(Self::Fleet(Fleet { settings, address }));
        }
        let folder = folder.ok_or_else(no_folder)?;
        Ok(Self::Node(Node {
            tokens: Tokens::new(&folder),
            folder,
            is_local: false,
        }))
    }

    /// Returns true if clients need a token there already.
    pub(super) fn is_required(&self) -> Result<bool> {
        match self {
            Self::Fleet(fleet) => {
                let is_required =
                    async |store: QuotaStore| Ok(store.fleet().await?.tokens_required);
                fleet.with_store(quotas::open, is_required)
            }
            Self::Node(node) => Ok(node.tokens.is_required()),
        }
    }

    /// Creates a token, and passes it to `show` as soon as it counts.
    pub(super) fn create(
        &self,
        name: &str,
        role: Role,
        show: impl FnOnce(&str) -> Result<()>,
    ) -> Result<()> {
        match self {
            Self::Fleet(fleet) => fleet.create(name, role, show),
            Self::Node(node) => show(&node.tokens.create(name, role)?),
        }
    }

    pub(super) fn list(&self) -> Result<Vec<Listed>> {
        match self {
            Self::Fleet(fleet) => fleet.list(),
            Self::Node(node) => {
                node.require_folder()?;
                let tokens = node.tokens.list()?.into_iter();
                Ok(tokens.map(|token| (token, "node")).collect())
            }
        }
    }

    /// The nodes on which its tokens count, in words.
    pub(super) fn scope(&self) -> String {
        match self {
            Self::Fleet(fleet) => {
                format!("every node that uses {}, within seconds", fleet.address)
            }
            Self::Node(node) => node.scope(),
        }
    }
}

impl Node {
    /// Takes the tokens of a holder away.
    pub(super) fn revoke(&self, name: &str) -> Result<()> {
        self.require_folder()?;
        Ok(self.tokens.revoke(name)?)
    }

    /// Refuses a folder that is not there: its name is misspelt, or it is another user's or host's.
    fn require_folder(&self) -> Result<()> {
        match std::fs::metadata(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => bail!(
                "there is no folder {}: name the data folder of a node with --data-dir; `token create` makes one",
                self.folder.display()
            ),
            _ => Ok(()),
        }
    }

    pub(super) fn scope(&self) -> String {
        let folder = self.folder.display();
        match self.is_local {
            true => format!("the node of {folder} alone, whatever the quota database says"),
            false => format!(
                "the node of {folder} alone: without a quota database tokens are by node (--quotas names one)"
            ),
        }
    }
}

impl Fleet {
    fn create(&self, name: &str, role: Role, show: impl FnOnce(&str) -> Result<()>) -> Result<()> {
        let (token, secret) = AdminToken::generate(name, role)?;
        let token = FleetToken::from(token);
        let editor = self.editor();
        let (shown, confirmed) = self.with_store(quotas::open, async move |store| {
            let version = store.create_token(&token, &editor).await?;
            // Before the wait: whoever ends the command meanwhile could never see it.
            let shown = show(&secret);
            Ok((shown, Confirmations::wait(&store, version).await))
        })?;
        shown?;
        match confirmed.map(|confirmed| confirmed.late().join(", ")) {
            Ok(late) if late.is_empty() => {}
            Ok(late) => output::complain(&format!("ratekeeper: not yet accepted by {late}")),
            Err(why) => {
                output::complain(&format!("ratekeeper: the nodes cannot be asked: {why:#}"));
            }
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<Listed>> {
        let state = self.with_store(quotas::open_existing, async |store| {
            Ok(store.fleet().await?)
        })?;
        let tokens = state.tokens.iter().filter_map(AdminToken::of_fleet);
        let mut all: Vec<Listed> = tokens.map(|token| (token, "fleet")).collect();
        if let Some(folder) = &*self.settings.values.data_dir {
            let local = Tokens::local(folder).list()?.into_iter();
            all.extend(local.map(|token| (token, "node")));
        }
        Ok(all)
    }

    /// Revokes the tokens of a holder, and waits until the nodes refuse them.
    pub(super) fn revoke(&self, name: &str) -> Result<Confirmations> {
        let editor = self.editor();
        let revoked = self.with_store(quotas::open_existing, async move |store| {
            let version = store.revoke_token(name, &editor).await?;
            // It is revoked, whatever comes of the question.
            let confirmed = Confirmations::wait(&store, version).await;
            Ok(confirmed.unwrap_or_else(|why| Confirmations::unknown(version, &why)))
        });
        revoked.map_err(|error| match error.downcast_ref() {
            Some(FleetTokenError::Unknown(_)) if self.is_local(name) => error.context(format!(
                "the token of {name} is one of a node alone: use --local"
            )),
            _ => error,
        })
    }

    /// True if the data folder has a token of that name that counts whatever the database says.
    fn is_local(&self, name: &str) -> bool {
        let folder = self.settings.values.data_dir.as_deref();
        let tokens = folder.and_then(|folder| Tokens::local(folder).list().ok());
        tokens.is_some_and(|tokens| tokens.iter().any(|token| *token.name == *name))
    }

    fn editor(&self) -> Editor {
        Editor {
            name: "ratekeeper token".to_owned(),
            source: self.settings.values.node_name.to_string(),
            request_id: String::new(),
        }
    }

    fn with_store<T, F: Future<Output = Result<T>>>(
        &self,
        open: fn(&Settings, &DatabaseAddress) -> Result<QuotaStore>,
        command: impl FnOnce(QuotaStore) -> F,
    ) -> Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let store = open(&self.settings, &self.address)?;
            let done = command(store).await;
            done.with_context(|| format!("--quotas {}", self.address))
        })
    }
}

/// The quota database that has the tokens of the services: the one that is named, or the one in the data folder if the
/// service there uses it.
///
/// # Errors
/// The service of the folder uses a database that is not named.
fn database(settings: &Settings, folder: Option<&Path>) -> Result<Option<DatabaseAddress>> {
    let quotas = &settings.quotas;
    if quotas.named.is_some() {
        return Ok(quotas.named.clone());
    }
    let copy = folder.map(FleetCopy::load).transpose()?.flatten();
    let Some(copy) = copy else {
        return Ok(None);
    };
    let unnamed = quotas.unnamed.clone();
    match unnamed.filter(|address| address.to_string() == copy.database) {
        Some(address) => Ok(Some(address)),
        None => bail!(
            "the service of {} has its tokens in {}: name that with --quotas, or use --local for tokens of this node \
             alone",
            folder.unwrap_or(Path::new(".")).display(),
            copy.database
        ),
    }
}

fn no_folder() -> anyhow::Error {
    anyhow!(
        "there is no place for tokens; name the services' quota database with --quotas, or the data folder of one with \
         --data-dir DIR"
    )
}
