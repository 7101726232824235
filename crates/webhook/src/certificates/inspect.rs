//! What a certificate is good for, found out with the code that checks certificates in connections.

use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use thiserror::Error;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::plan::Span;

/// Later than any certificate's end, in seconds since 1970 (the year 9999 is the last in X.509).
const END_OF_TIME: u64 = 300_000_000_000;

/// Why a certificate and a key can't be used in connections.
#[derive(Debug, Error)]
pub(crate) enum PairError {
    /// No PEM.
    #[error("`tls.crt` is no certificate")]
    Certificate(#[source] rustls::pki_types::pem::Error),
    /// Nothing in it.
    #[error("`tls.crt` has no certificate in it")]
    NoCertificate,
    /// No PEM.
    #[error("`tls.key` is no key")]
    Key(#[source] rustls::pki_types::pem::Error),
    /// A key of another certificate, or of a kind that can't be used.
    #[error("`tls.crt` and `tls.key` can't be used together")]
    Pair(#[source] rustls::Error),
    /// A certificate that can't be taken apart.
    #[error("`tls.crt` has a certificate that can't be read")]
    Unreadable,
}

/// All certificates in a text; none when one can't be read.
pub(crate) fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().unwrap_or_default()
}

/// What connections need, and when it is valid.
pub(crate) fn pair(certificate: &str, key: &str) -> Result<(CertifiedKey, Span), PairError> {
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(certificate.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(PairError::Certificate)?;
    let span = span(chain.first().ok_or(PairError::NoCertificate)?);
    let span = span.ok_or(PairError::Unreadable)?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(PairError::Key)?;
    // Compares the keys too.
    let key =
        CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(PairError::Pair)?;
    Ok((key, span))
}

/// When a certificate is valid: a check at a moment when none is says when it ended, and one at the
/// beginning of time when it will begin.
pub(crate) fn span(certificate: &CertificateDer<'_>) -> Option<Span> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let at = |seconds| verify(&certificate, &[], seconds);
    let not_after = match at(END_OF_TIME) {
        Err(webpki::Error::CertExpired { not_after, .. }) => not_after.as_secs(),
        _ => return None,
    };
    let not_before = match at(0) {
        Err(webpki::Error::CertNotValidYet { not_before, .. }) => not_before.as_secs(),
        // One from 1970 on, which nobody makes.
        _ => 0,
    };
    Some(Span { not_before, not_after })
}

/// Whether a CA signed a certificate, at a moment when both are valid.
pub(crate) fn is_signed_by(
    leaf: &CertificateDer<'_>,
    authority: &CertificateDer<'_>,
    at: u64,
) -> bool {
    let (Ok(leaf), Ok(anchor)) =
        (EndEntityCert::try_from(leaf), anchor_from_trusted_cert(authority))
    else {
        return false;
    };
    verify(&leaf, &[anchor], at).is_ok()
}

/// Whether a certificate is for this DNS name.
pub(crate) fn is_for(leaf: &CertificateDer<'_>, name: &str) -> bool {
    let (Ok(leaf), Ok(name)) = (EndEntityCert::try_from(leaf), ServerName::try_from(name)) else {
        return false;
    };
    leaf.verify_is_valid_for_subject_name(&name).is_ok()
}

fn verify(
    leaf: &EndEntityCert<'_>,
    anchors: &[rustls::pki_types::TrustAnchor<'_>],
    at: u64,
) -> Result<(), webpki::Error> {
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    let at = UnixTime::since_unix_epoch(Duration::from_secs(at));
    leaf.verify_for_usage(algorithms, anchors, &[], at, KeyUsage::server_auth(), None, None)
        .map(drop)
}
