//! Stands in for the address database in builds without `geoip`.

use std::net::IpAddr;
use std::path::Path;

use crate::identity::IdentityFault;

#[derive(Debug)]
pub(super) enum Database {}

impl Database {
    pub(super) const fn open(_: &Path) -> Result<Self, IdentityFault> {
        Err(IdentityFault::WithoutGeoip)
    }

    pub(super) const fn refresh(&self) -> Result<bool, IdentityFault> {
        match *self {}
    }

    pub(super) const fn country(&self, _: IpAddr) -> Option<String> {
        match *self {}
    }
}
