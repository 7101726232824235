//! Keys and certificates, by the P-256 curve.
//!
//! Every CA has the same name; which one signed is told by its key. So a CA is its key and a
//! certificate, and neither has to be taken apart to sign with it.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};

use super::plan::Span;

/// The name of every CA.
const AUTHORITY: &str = "mpshare-webhook-ca";

/// For clocks that are behind by less.
const MOST_BACKDATING: Duration = Duration::from_hours(1);

/// A certificate and its key, as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// A new CA.
pub(crate) fn authority(now: u64, life: Duration) -> Result<Pair, rcgen::Error> {
    let mut params = authority_params();
    set_span(&mut params, span(now, life));
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?.pem();
    Ok(Pair { certificate, key: key.serialize_pem() })
}

/// A new serving certificate by a CA that is valid for this span; it ends with it at the latest.
pub(crate) fn serving(
    authority_key: &str,
    authority: Span,
    name: &str,
    now: u64,
    life: Duration,
) -> Result<Pair, rcgen::Error> {
    let mut span = span(now, life);
    span.not_before = span.not_before.max(authority.not_before);
    span.not_after = span.not_after.min(authority.not_after);
    let issuer = Issuer::new(authority_params(), KeyPair::from_pem(authority_key)?);
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name(name));
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    set_span(&mut params, span);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?.pem();
    Ok(Pair { certificate, key: key.serialize_pem() })
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, AUTHORITY);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// A common name has 64 characters at most; nobody reads it but people.
fn common_name(name: &str) -> String {
    name.chars().take(64).collect()
}

/// From a little before now on.
fn span(now: u64, life: Duration) -> Span {
    let backdating = MOST_BACKDATING.min(life / 10).as_secs();
    Span {
        not_before: now.saturating_sub(backdating),
        not_after: now.saturating_add(life.as_secs()),
    }
}

fn set_span(params: &mut CertificateParams, span: Span) {
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(span.not_before);
    params.not_after = epoch + Duration::from_secs(span.not_after);
}
