//! Accepts and refuses server certificates.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, Error, RootCertStore};

use super::{AnchoredVerifier, Authorities};

/// 2026-01-01.
const NOW: u64 = 1_767_225_600;

fn params(name: &str, is_ca: IsCa) -> CertificateParams {
    let names = vec!["redis.example".to_owned()];
    let mut params = CertificateParams::new(names).expect("a good name");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = is_ca;
    params
}

fn authority() -> IsCa {
    IsCa::Ca(BasicConstraints::Unconstrained)
}

fn key() -> KeyPair {
    KeyPair::generate().expect("the system has random numbers")
}

/// A certificate as `openssl req -x509` makes it, or one without CA:TRUE.
fn signs_itself(params: CertificateParams) -> CertificateDer<'static> {
    let made = params.self_signed(&key());
    made.expect("it can vouch for itself").der().clone()
}

/// Verifies the server certificate `shown` for the name `name` against `trusted`.
fn verify(
    trusted: &[&CertificateDer<'static>],
    shown: &CertificateDer<'_>,
    name: &'static str,
) -> Result<(), Error> {
    let mut roots = RootCertStore::empty();
    let certificates: Vec<_> = trusted.iter().map(|it| (*it).clone()).collect();
    for certificate in &certificates {
        let added = roots.add(certificate.clone());
        added.expect("it is a certificate");
    }
    let authorities = Authorities {
        roots,
        certificates,
    };
    let verifier = AnchoredVerifier::new(authorities, Arc::new(ring::default_provider()));
    let name = ServerName::try_from(name).expect("a good name");
    let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW));
    let verifier = verifier.expect("there is somebody to trust");
    verifier
        .verify_server_cert(shown, &[], &name, &[], now)
        .map(drop)
}

#[test]
fn a_certificate_that_is_trusted_itself_is_believed() {
    for is_ca in [authority(), IsCa::ExplicitNoCa, IsCa::NoCa] {
        let own = signs_itself(params("redis", is_ca));
        assert_eq!(verify(&[&own], &own, "redis.example"), Ok(()), "{is_ca:?}");
    }
    // One whose issuer is not trusted.
    let issuer = CertifiedIssuer::self_signed(params("authority", authority()), key());
    let issuer = issuer.expect("it can vouch for itself");
    let leaf = params("redis", IsCa::NoCa).signed_by(&key(), &issuer);
    let leaf = leaf.expect("it can vouch for others").der().clone();
    assert_eq!(verify(&[&leaf], &leaf, "redis.example"), Ok(()));
    // The usual case.
    assert_eq!(verify(&[issuer.der()], &leaf, "redis.example"), Ok(()));
}

#[test]
fn its_name_counts() {
    for is_ca in [authority(), IsCa::NoCa] {
        let own = signs_itself(params("redis", is_ca));
        let refused = verify(&[&own], &own, "other.example");
        assert!(
            matches!(
                refused,
                Err(Error::InvalidCertificate(
                    CertificateError::NotValidForNameContext { .. }
                ))
            ),
            "{refused:?}"
        );
    }
}

#[test]
fn its_dates_count() {
    for is_ca in [authority(), IsCa::NoCa] {
        let mut expired = params("redis", is_ca);
        expired.not_before = date_time_ymd(2020, 1, 1);
        expired.not_after = date_time_ymd(2021, 1, 1);
        let expired = signs_itself(expired);
        let refused = verify(&[&expired], &expired, "redis.example");
        assert!(
            matches!(
                refused,
                Err(Error::InvalidCertificate(
                    CertificateError::ExpiredContext { .. }
                ))
            ),
            "{refused:?}"
        );
        let mut early = params("redis", is_ca);
        early.not_before = date_time_ymd(2030, 1, 1);
        let early = signs_itself(early);
        let refused = verify(&[&early], &early, "redis.example");
        assert!(
            matches!(
                refused,
                Err(Error::InvalidCertificate(
                    CertificateError::NotValidYetContext { .. }
                ))
            ),
            "{refused:?}"
        );
    }
}

/// A certificate with the same subject and another key is a different one.
#[test]
fn one_that_looks_like_it_is_refused_and_it_is_said_why() {
    let trusted = signs_itself(params("redis", authority()));
    let other = signs_itself(params("redis", authority()));
    let refused = verify(&[&trusted], &other, "redis.example");
    let said = refused.expect_err("it is another one").to_string();
    assert!(
        said.contains("CA:TRUE") && said.contains("file of authorities"),
        "{said}"
    );

    let trusted = signs_itself(params("redis", IsCa::NoCa));
    let other = signs_itself(params("another", IsCa::NoCa));
    let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
    assert_eq!(verify(&[&trusted], &other, "redis.example"), Err(unknown));
}
