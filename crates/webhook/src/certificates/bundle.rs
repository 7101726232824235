//! What the Secret holds, and what each step makes of it.
//!
//! | key | what |
//! |---|---|
//! | `ca.crt` | every CA that API servers are to trust; the first one signs |
//! | `ca.key` | its key |
//! | `tls.crt`, `tls.key` | the serving certificate |
//! | `next-ca.crt`, `next-ca.key` | the CA that will sign, while it is published |

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use rustls::pki_types::CertificateDer;

use super::inspect::{certificates, is_for, is_signed_by, pair, span};
use super::issue::{self, Pair};
use super::plan::{Found, Issuer, Leaf, Name, Span, Step};
use super::{Lives, SelfMade};

const CA_CERTIFICATES: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
const TLS_CERTIFICATE: &str = "tls.crt";
const TLS_KEY: &str = "tls.key";
const NEXT_CERTIFICATE: &str = "next-ca.crt";
const NEXT_KEY: &str = "next-ca.key";

/// What the Secret holds, as text; what is absent or no text is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Bundle {
    /// The CAs, one PEM each.
    authorities: Vec<String>,
    key: String,
    pub(crate) serving: Option<Pair>,
    next: Option<Pair>,
}

impl Bundle {
    /// Reads a Secret's data.
    pub(crate) fn read(data: &BTreeMap<String, ByteString>) -> Self {
        let text = |key: &str| {
            let bytes = data.get(key).map(|bytes| bytes.0.clone()).unwrap_or_default();
            String::from_utf8(bytes).unwrap_or_default()
        };
        let pair = |certificate: &str, key: &str| {
            let pair = Pair { certificate: text(certificate), key: text(key) };
            (!pair.certificate.is_empty() && !pair.key.is_empty()).then_some(pair)
        };
        Self {
            authorities: separate(&text(CA_CERTIFICATES)),
            key: text(CA_KEY),
            serving: pair(TLS_CERTIFICATE, TLS_KEY),
            next: pair(NEXT_CERTIFICATE, NEXT_KEY),
        }
    }

    /// Writes it into a Secret's data; other keys stay.
    pub(crate) fn write(&self, data: &mut BTreeMap<String, ByteString>) {
        let mut put = |key: &str, text: Option<&str>| {
            match text {
                Some(text) => data.insert(key.to_owned(), ByteString(text.as_bytes().to_vec())),
                None => data.remove(key),
            };
        };
        put(CA_CERTIFICATES, Some(&self.published()));
        put(CA_KEY, Some(&self.key));
        put(TLS_CERTIFICATE, self.serving.as_ref().map(|pair| pair.certificate.as_str()));
        put(TLS_KEY, self.serving.as_ref().map(|pair| pair.key.as_str()));
        put(NEXT_CERTIFICATE, self.next.as_ref().map(|pair| pair.certificate.as_str()));
        put(NEXT_KEY, self.next.as_ref().map(|pair| pair.key.as_str()));
    }

    /// Every CA that API servers are to trust.
    pub(crate) fn published(&self) -> String {
        self.authorities.concat()
    }

    /// What there is for [`super::plan`].
    pub(crate) fn found(&self, name: &str, now: u64) -> Found {
        let present = self.authorities.first();
        let next = self.next.as_ref().filter(|next| self.authorities.contains(&next.certificate));
        let is_other = |pem: &&String| next.is_none_or(|next| next.certificate != **pem);
        Found {
            present: present.and_then(|pem| authority_span(pem, &self.key)),
            next: next.and_then(|next| authority_span(&next.certificate, &next.key)),
            formers: self.authorities.iter().skip(1).filter(is_other).count(),
            serving: present.and_then(|present| self.leaf(present, name, now)),
        }
    }

    fn leaf(&self, present: &str, name: &str, now: u64) -> Option<Leaf> {
        let serving = self.serving.as_ref()?;
        let (_, span) = pair(&serving.certificate, &serving.key).ok()?;
        let leaf = certificates(&serving.certificate).into_iter().next()?;
        let authority = certificates(present).into_iter().next()?;
        let is_signed = is_signed_by(&leaf, &authority, now.clamp(span.not_before, span.not_after));
        Some(Leaf {
            span,
            issuer: if is_signed { Issuer::Present } else { Issuer::Other },
            name: if is_for(&leaf, name) { Name::Right } else { Name::Wrong },
        })
    }

    /// What it is after a step.
    pub(crate) fn after(
        &self,
        step: Step,
        options: &SelfMade,
        now: u64,
    ) -> Result<Self, rcgen::Error> {
        let Lives { authority, serving } = options.lives;
        let name = options.dns_name();
        let serve = |mut bundle: Self| {
            let span = bundle.authorities.first().and_then(|pem| span_of(pem));
            let span = span.ok_or(rcgen::Error::CouldNotParseCertificate)?;
            bundle.serving = Some(issue::serving(&bundle.key, span, &name, now, serving)?);
            Ok(bundle)
        };
        match step {
            Step::Rest => Ok(self.clone()),
            Step::MakeAll => {
                let Pair { certificate, key } = issue::authority(now, authority)?;
                serve(Self { authorities: vec![certificate], key, serving: None, next: None })
            }
            Step::RenewServing => serve(self.clone()),
            Step::IntroduceNext => {
                let next = issue::authority(now, authority)?;
                let mut bundle = self.clone();
                bundle.authorities.push(next.certificate.clone());
                bundle.next = Some(next);
                Ok(bundle)
            }
            Step::SwitchToNext => {
                let mut bundle = self.clone();
                let Some(Pair { certificate, key }) = bundle.next.take() else {
                    return Ok(bundle);
                };
                bundle.authorities.retain(|pem| *pem != certificate);
                bundle.authorities.insert(0, certificate);
                bundle.key = key;
                serve(bundle)
            }
            Step::DropFormers => {
                let mut bundle = self.clone();
                bundle.authorities.truncate(1);
                bundle.next = None;
                Ok(bundle)
            }
        }
    }
}

/// When a CA is valid, if it can sign with this key: the proof is a certificate that it signs.
fn authority_span(certificate: &str, key: &str) -> Option<Span> {
    let authority = certificates(certificate).into_iter().next()?;
    let span = span(&authority)?;
    let life = Duration::from_mins(1);
    let proof = issue::serving(key, span, "proof.invalid", span.not_before, life).ok()?;
    let proof = certificates(&proof.certificate).into_iter().next()?;
    is_signed_by(&proof, &authority, span.not_before).then_some(span)
}

fn span_of(pem: &str) -> Option<Span> {
    let certificate: Vec<CertificateDer<'static>> = certificates(pem);
    span(certificate.first()?)
}

/// The certificates of a text, one PEM each.
fn separate(pem: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let blocks = pem.split_inclusive(END).filter(|block| block.ends_with(END));
    blocks.map(|block| format!("{}\n", block.trim_start())).collect()
}

#[cfg(test)]
mod tests;
