//! Countries by address, from a MaxMind DB.

use std::net::IpAddr;
use std::path::Path;

use arc_swap::ArcSwap;
use maxminddb::{PathElement, Reader};

use super::is_code;
use crate::identity::IdentityFault;
use crate::identity::file::{WatchedFile, read};

#[derive(Debug)]
pub(super) struct Database {
    reader: ArcSwap<Reader<Vec<u8>>>,
    file: WatchedFile,
}

impl Database {
    pub(super) fn open(path: &Path) -> Result<Self, IdentityFault> {
        let (content, file) = read(path)?;
        Ok(Self {
            reader: ArcSwap::from_pointee(understood(content, &file)?),
            file,
        })
    }

    /// Reloads the file if it has changed and is valid.
    pub(super) fn refresh(&self) -> Result<bool, IdentityFault> {
        let Some(content) = self.file.changed()? else {
            return Ok(false);
        };
        let reader = understood(content, &self.file)?;
        self.reader.store(reader.into());
        Ok(true)
    }

    pub(super) fn country(&self, client: IpAddr) -> Option<String> {
        let reader = self.reader.load();
        // An unknown address, or a broken record, has no country.
        let found = reader.lookup(client).ok()?;
        let path = [PathElement::Key("country"), PathElement::Key("iso_code")];
        let code: String = found.decode_path(&path).ok()??;
        is_code(&code).then(|| code.to_ascii_uppercase())
    }
}

fn understood(content: Vec<u8>, file: &WatchedFile) -> Result<Reader<Vec<u8>>, IdentityFault> {
    Reader::from_source(content).map_err(|error| IdentityFault::NotADatabase {
        path: file.path.clone(),
        error: error.into(),
    })
}
