//! Files with credentials for NATS.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use async_nats::{AuthError, ConnectOptions};
use nkeys::{KeyPair, KeyPairType};

use crate::ExportError;

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 16;

/// The mark of a file with a JWT, as `nsc` writes it.
const JWT_BEGINS: &str = "-----BEGIN NATS USER JWT-----";

/// The mark of the nkey in such a file.
const SEED_BEGINS: &str = "-----BEGIN USER NKEY SEED-----";

/// A user's credentials for NATS.
pub(crate) struct Credentials {
    /// The user's claims, signed by its account; [`None`] if the server itself knows the nkey.
    jwt: Option<String>,
    seed: String,
    user: KeyPair,
}

impl Credentials {
    /// Reads a `.creds` file, or one with the seed of an nkey alone. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, or has no credentials of a user.
    pub(crate) fn read(path: &Path) -> Result<Self, ExportError> {
        let mut text = String::new();
        let file = File::open(path);
        let read = file.and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
        read.map_err(|source| ExportError::CredentialsFile {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text).ok_or_else(|| ExportError::NoCredentials(path.to_owned()))
    }

    fn parse(text: &str) -> Option<Self> {
        let (jwt, seed) = match text.contains(JWT_BEGINS) {
            true => (
                Some(line_after(text, JWT_BEGINS)?),
                line_after(text, SEED_BEGINS)?,
            ),
            false => (
                None,
                text.lines().map(str::trim).find(|line| is_seed(line))?,
            ),
        };
        let user = KeyPair::from_seed(seed).ok()?;
        matches!(user.key_pair_type(), KeyPairType::User).then(|| Self {
            jwt: jwt.map(str::to_owned),
            seed: seed.to_owned(),
            user,
        })
    }

    /// The options of a connection with these credentials.
    pub(crate) fn applied_to(self, options: ConnectOptions) -> ConnectOptions {
        let Self { jwt, seed, user } = self;
        let Some(jwt) = jwt else {
            return options.nkey(seed);
        };
        let user = Arc::new(user);
        options.jwt(jwt, move |nonce| {
            let user = Arc::clone(&user);
            async move { user.sign(&nonce).map_err(AuthError::new) }
        })
    }
}

/// The line after the one with `mark`, unless it is empty.
fn line_after<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| *line == mark)?;
    lines.next().filter(|line| !line.is_empty())
}

/// Returns true for the form of a user's seed. The checksum is another matter.
fn is_seed(line: &str) -> bool {
    line.starts_with("SU") && line.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed() -> String {
        KeyPair::new_user().seed().expect("a new pair has its seed")
    }

    #[test]
    fn a_file_has_a_seed_or_a_jwt_as_well() {
        let seed = seed();
        let alone = Credentials::parse(&format!("# the exporter\n{seed}\n")).expect("it is a seed");
        assert_eq!((alone.jwt, &alone.seed), (None, &seed));
        let text = format!(
            "{JWT_BEGINS}\r\neyJ0.eyJq.sig\r\n------END NATS USER JWT------\r\n\r\nkeep it\r\n\
             {SEED_BEGINS}\r\n{seed}\r\n------END USER NKEY SEED------\r\n"
        );
        let both = Credentials::parse(&text).expect("it has both");
        assert_eq!(
            (both.jwt.as_deref(), &both.seed),
            (Some("eyJ0.eyJq.sig"), &seed)
        );
    }

    #[test]
    fn nothing_else_is_taken_for_credentials() {
        let seed = seed();
        let account = KeyPair::new_account();
        let account = account.seed().expect("a new pair has its seed");
        let without_seed = format!("{JWT_BEGINS}\neyJ0\n");
        let mut mistyped = seed.clone();
        mistyped.replace_range(20..21, if &seed[20..21] == "A" { "B" } else { "A" });
        let without_jwt = format!("{JWT_BEGINS}\n\n{SEED_BEGINS}\n{seed}\n");
        for wrong in ["", "SU", &account, &without_seed, &mistyped, &without_jwt] {
            assert!(Credentials::parse(wrong).is_none(), "{wrong}");
        }
    }
}
