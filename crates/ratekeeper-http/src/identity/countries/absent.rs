//! Stands in for the address database in builds without `geoip`.

use std::net::IpAddr;
use std::path::Path;

#[derive(Debug)]
pub(super) enum Database {}

impl Database {
    pub(super) fn open(_: &Path) -> Result<Self, String> {
        let message = "this program was built without the feature `geoip`, so it can read no database of addresses; \
                       `header` does without";
        Err(message.to_owned())
    }

    pub(super) const fn refresh(&self) -> Result<bool, String> {
        match *self {}
    }

    pub(super) const fn country(&self, _: IpAddr) -> Option<String> {
        match *self {}
    }
}
