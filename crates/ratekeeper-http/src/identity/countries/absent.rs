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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Database;

    #[test]
    fn a_build_that_reads_no_database_of_addresses_says_so() {
        let refused = Database::open(Path::new("countries.mmdb")).expect_err("it reads none");
        let told = refused.to_string();
        assert!(
            told.starts_with("this program was built without the feature `geoip`"),
            "{told}"
        );
    }
}
