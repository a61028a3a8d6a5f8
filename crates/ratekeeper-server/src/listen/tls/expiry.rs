//! The end of a certificate, which operators are to hear of before clients do.

use jiff::civil::DateTime;
use jiff::tz::Offset;

use super::der::{Der, tag};

/// The end of a certificate's validity (RFC 5280, section 4.1.2.5), in seconds since 1970. None where it is no certificate.
pub(super) fn of_certificate(certificate: &[u8]) -> Option<i64> {
    let mut to_be_signed = Der(certificate)
        .enter(tag::SEQUENCE)?
        .enter(tag::SEQUENCE)?;
    let mut sequences = 0;
    while let Some((found, content)) = to_be_signed.next()? {
        // The algorithm, the issuer, and the validity.
        sequences += usize::from(found == tag::SEQUENCE);
        if sequences == 3 {
            let mut validity = Der(content);
            validity.next()??;
            let (kind, end) = validity.next()??;
            return moment(kind, std::str::from_utf8(end).ok()?);
        }
    }
    None
}

/// A time as certificates write it: to the second, in UTC.
fn moment(kind: u8, text: &str) -> Option<i64> {
    let digits = text.strip_suffix('Z')?;
    let (year, rest) = match kind {
        tag::GENERALIZED_TIME => digits.split_at_checked(4)?,
        tag::UTC_TIME => digits.split_at_checked(2)?,
        _ => return None,
    };
    let year: i16 = year.parse().ok()?;
    let year = match kind {
        tag::UTC_TIME if year < 50 => 2000 + year,
        tag::UTC_TIME => 1900 + year,
        _ => year,
    };
    let pair = |at: usize| rest.get(at..at + 2)?.parse().ok();
    let (month, day) = (pair(0)?, pair(2)?);
    let (hour, minute, second) = (pair(4)?, pair(6)?, pair(8)?);
    let moment = DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    Some(Offset::UTC.to_timestamp(moment).ok()?.as_second())
}

#[cfg(test)]
mod tests {
    use ratekeeper_testkit::certificates::Identity;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_read() {
        let own = Identity::self_signed("ratekeeper.example");
        let own = CertificateDer::from_pem_slice(own.certificate.as_bytes()).expect("it is one");
        // What rcgen says unless it is told otherwise: 4096-01-01.
        assert_eq!(of_certificate(&own), Some(67_090_118_400));
        for cut in 0..own.len() {
            let _ = of_certificate(&own[..cut]);
        }
        assert_eq!(of_certificate(b"hello"), None);
    }

    #[test]
    fn both_kinds_of_times_are_understood() {
        assert_eq!(moment(tag::UTC_TIME, "491231235959Z"), Some(2_524_607_999));
        assert_eq!(moment(tag::UTC_TIME, "700101000001Z"), Some(1));
        let later = moment(tag::GENERALIZED_TIME, "20500101000000Z");
        assert_eq!(later, Some(2_524_608_000));
        for bad in [
            "",
            "Z",
            "20500101000000",
            "20501301000000Z",
            "2050Z",
            "\u{e9}00101000000Z",
        ] {
            assert_eq!(moment(tag::GENERALIZED_TIME, bad), None, "{bad}");
        }
    }
}
