//! Verifies signatures with ring, which TLS already brings in.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature::{
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use ring::{hmac, signature};

/// Makes the process verify tokens with ring, unless another provider was installed before.
pub(super) fn install() {
    static RING: CryptoProvider = CryptoProvider {
        signer_factory: no_signer,
        verifier_factory: verifier,
        key_utils: KeyUtils::new_unimplemented(),
    };
    // An embedder's own choice serves as well.
    let _ = RING.install_default();
}

/// Refuses: nothing is signed here.
fn no_signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    Err(ErrorKind::UnsupportedAlgorithm.into())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    let by = match algorithm {
        Algorithm::HS256 => By::Hmac(hmac::Key::new(hmac::HMAC_SHA256, key.try_get_as_bytes()?)),
        Algorithm::HS384 => By::Hmac(hmac::Key::new(hmac::HMAC_SHA384, key.try_get_as_bytes()?)),
        Algorithm::HS512 => By::Hmac(hmac::Key::new(hmac::HMAC_SHA512, key.try_get_as_bytes()?)),
        Algorithm::ES256 => By::bytes(&signature::ECDSA_P256_SHA256_FIXED, key)?,
        Algorithm::ES384 => By::bytes(&signature::ECDSA_P384_SHA384_FIXED, key)?,
        Algorithm::EdDSA => By::bytes(&signature::ED25519, key)?,
        Algorithm::RS256 => By::rsa(&signature::RSA_PKCS1_2048_8192_SHA256, key)?,
        Algorithm::RS384 => By::rsa(&signature::RSA_PKCS1_2048_8192_SHA384, key)?,
        Algorithm::RS512 => By::rsa(&signature::RSA_PKCS1_2048_8192_SHA512, key)?,
        Algorithm::PS256 => By::rsa(&signature::RSA_PSS_2048_8192_SHA256, key)?,
        Algorithm::PS384 => By::rsa(&signature::RSA_PSS_2048_8192_SHA384, key)?,
        Algorithm::PS512 => By::rsa(&signature::RSA_PSS_2048_8192_SHA512, key)?,
        _ => return Err(ErrorKind::UnsupportedAlgorithm.into()),
    };
    Ok(Box::new(Checked {
        algorithm: *algorithm,
        by,
    }))
}

/// An algorithm with its key.
struct Checked {
    algorithm: Algorithm,
    by: By,
}

enum By {
    Hmac(hmac::Key),
    Bytes(&'static dyn VerificationAlgorithm, Vec<u8>),
    Rsa(&'static RsaParameters, RsaPublicKeyComponents<Vec<u8>>),
}

impl By {
    fn bytes(algorithm: &'static dyn VerificationAlgorithm, key: &DecodingKey) -> Result<Self> {
        Ok(Self::Bytes(algorithm, key.try_get_as_bytes()?.to_vec()))
    }

    fn rsa(parameters: &'static RsaParameters, key: &DecodingKey) -> Result<Self> {
        match key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                let (n, e) = (n.clone(), e.clone());
                Ok(Self::Rsa(parameters, RsaPublicKeyComponents { n, e }))
            }
            DecodingKeyKind::SecretOrDer(der) => Ok(Self::Bytes(parameters, der.clone())),
        }
    }
}

impl Verifier<Vec<u8>> for Checked {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let checked = match &self.by {
            By::Hmac(key) => hmac::verify(key, message, signature),
            By::Bytes(algorithm, key) => {
                UnparsedPublicKey::new(*algorithm, key).verify(message, signature)
            }
            By::Rsa(parameters, key) => key.verify(parameters, message, signature),
        };
        checked.map_err(|_| Error::new())
    }
}

impl JwtVerifier for Checked {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
