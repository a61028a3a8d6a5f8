//! The tokens and switches that a node has kept in files, put into its quota database.

use std::path::Path;

use ratekeeper_quota::{Editor, QuotaError, QuotaStore, TOKENS_MAX};
use tracing::{info, warn};

use super::FleetCopy;
use crate::access::{AdminTokenError, Tokens};
use crate::blocking::blocking;
use crate::data_dir::switches::SwitchFile;

/// The reason why a node's files are not in the database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A file cannot be read, or moved out of the way.
    #[error(transparent)]
    File(#[from] AdminTokenError),
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] QuotaError),
}

/// Puts the tokens and switches that a node has kept in the files of its data folder into its quota database, once: the
/// files are moved out of the way then. The database has the union of all nodes' tokens, in which a revocation wins, and
/// of their switches, in which the first one wins. Returns true if there was something to put there.
///
/// # Errors
/// A file cannot be read, or the database cannot be used; then nothing is moved.
pub async fn import_node_files(
    folder: &Path,
    store: &QuotaStore,
    node: &str,
) -> Result<bool, ImportError> {
    let editor = Editor {
        name: "import of files".to_owned(),
        source: node.to_owned(),
        request_id: String::new(),
    };
    let has_switches = import_switches(folder, store, &editor).await?;
    let has_tokens = import_tokens(folder, store, &editor).await?;
    Ok(has_switches || has_tokens)
}

async fn import_switches(
    folder: &Path,
    store: &QuotaStore,
    editor: &Editor,
) -> Result<bool, ImportError> {
    let at = folder.to_path_buf();
    let Some(switches) = blocking(move || SwitchFile::kept(&at)).await else {
        return Ok(false);
    };
    let added = store.import_switches(&switches, editor).await?;
    info!(
        added,
        found = switches.len(),
        "the switches of this node's file are in the quota database, for all nodes"
    );
    let at = folder.to_path_buf();
    blocking(move || SwitchFile::set_imported(&at)).await;
    Ok(true)
}

async fn import_tokens(
    folder: &Path,
    store: &QuotaStore,
    editor: &Editor,
) -> Result<bool, ImportError> {
    let at = folder.to_path_buf();
    let read = blocking(move || {
        let of_node = Tokens::new(&at).to_import()?;
        let copy = FleetCopy::load(&at).ok().flatten();
        Ok::<_, AdminTokenError>((of_node, copy))
    });
    let (Some(of_node), copy) = read.await? else {
        return Ok(false);
    };
    if of_node.tokens.is_empty() && of_node.revoked.is_empty() {
        // The marker alone, which tells nothing new once all nodes demand tokens.
        let is_told = copy.is_some_and(|copy| copy.state.tokens_required);
        if is_told || store.fleet().await?.tokens_required {
            return Ok(false);
        }
    }
    let imported = store.import_tokens(&of_node, editor).await?;
    if !imported.left_out.is_empty() {
        warn!(
            names = imported.left_out.join(", "),
            "tokens of this node's files do not count: the quota database has {TOKENS_MAX} already; make them again after \
             others are revoked"
        );
    }
    info!(
        added = imported.added,
        found = of_node.tokens.len(),
        revoked = of_node.revoked.len(),
        "the tokens of this node's files are in the quota database, for all nodes"
    );
    let at = folder.to_path_buf();
    blocking(move || Tokens::new(&at).set_imported()).await?;
    Ok(true)
}
