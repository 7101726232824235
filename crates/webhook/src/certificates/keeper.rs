//! Keeps the Secret good, the connections served with what it holds, and its CAs published.
//!
//! Each look does at most one step, by a write that fails if somebody else was faster: then what
//! they wrote counts. How long the bundle has been out is measured by this process alone, with a
//! clock that doesn't jump; after a restart the pause begins anew.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use mpshare_api::names::FIELD_MANAGER;
use mpshare_telemetry::{Failures, sentence};
use thiserror::Error;

use super::bundle::Bundle;
use super::configurations::{Published, publish};
use super::inspect;
use super::issue::Pair;
use super::plan::{Spread, Step, next_step};
use super::{SelfMade, now};
use crate::serving::Serving;

/// After a lost race the winner's Secret is read so soon.
const AFTER_LOST_RACE: Duration = Duration::from_millis(20);

/// Why a look ended early.
#[derive(Debug, Error)]
enum LookError {
    #[error("can't read the Secret `{0}`")]
    Read(String, #[source] kube::Error),
    #[error("can't write the Secret `{0}`")]
    Write(String, #[source] kube::Error),
    #[error("can't make a certificate")]
    Issue(#[source] rcgen::Error),
}

/// Keeps everything good, without end. That something fails is said once.
pub(crate) async fn run(client: &Client, options: &SelfMade, serving: &Arc<Serving>) {
    let mut keeper = Keeper {
        secrets: Api::namespaced(client.clone(), &options.namespace),
        client,
        options,
        serving,
        served: None,
        out: None,
    };
    let mut looks = Failures::new("can't keep the certificate, the one in use stays; retrying");
    let mut publications = Failures::new("not every API server trusts the certificate; retrying");
    loop {
        let looked = keeper.look().await;
        let pause = match &looked {
            Ok(Looked::Lost) => AFTER_LOST_RACE,
            Ok(Looked::Good | Looked::Stepped) | Err(_) => options.look_every,
        };
        match looked {
            Ok(_) => looks.over(),
            Err(error) => looks.failed(&sentence(&error)),
        }
        match keeper.publish().await {
            Ok(()) => publications.over(),
            Err(error) => publications.failed(&sentence(&error)),
        }
        tokio::time::sleep(pause).await;
    }
}

/// How a look ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// Nothing was to be done.
    Good,
    /// A step was made.
    Stepped,
    /// Somebody else made one.
    Lost,
}

struct Keeper<'a> {
    secrets: Api<Secret>,
    client: &'a Client,
    options: &'a SelfMade,
    serving: &'a Serving,
    served: Option<Pair>,
    out: Option<Out>,
}

/// The bundle that is published, and since when everything is as the Secret says.
struct Out {
    version: Option<String>,
    bundle: Bundle,
    since: Option<Instant>,
}

impl Keeper<'_> {
    /// Reads the Secret, makes the step that is next, and serves what there is then.
    async fn look(&mut self) -> Result<Looked, LookError> {
        let name = &self.options.secret;
        let secret = self.secrets.get_opt(name).await;
        let secret = secret.map_err(|error| LookError::Read(name.clone(), error))?;
        let data = secret.as_ref().and_then(|secret| secret.data.as_ref());
        // A chart brings one without data.
        let is_filled = data.is_some_and(|data| !data.is_empty());
        let bundle = data.map(Bundle::read).unwrap_or_default();
        let version = secret.as_ref().and_then(|secret| secret.metadata.resource_version.clone());
        let spread = self.spread(version.as_deref());
        let time = now();
        let found = bundle.found(&self.options.dns_name(), time);
        let step = next_step(&found, spread, time);
        if step == Step::Rest {
            self.take(version, bundle);
            return Ok(Looked::Good);
        }
        if step == Step::MakeAll && is_filled {
            tracing::warn!(secret = name, "the Secret holds no usable CA; everything is made anew");
        }
        let after = bundle.after(step, self.options, time).map_err(LookError::Issue)?;
        match self.write(secret, &after).await {
            Ok(version) => {
                tracing::info!(secret = name, ?step, "certificates");
                self.take(version, after);
                Ok(Looked::Stepped)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                tracing::debug!(secret = name, ?step, "another replica was faster");
                Ok(Looked::Lost)
            }
            Err(error) => {
                // What there is may still be good.
                self.take(version, bundle);
                Err(LookError::Write(name.clone(), error))
            }
        }
    }

    fn spread(&self, version: Option<&str>) -> Spread {
        let out = self.out.as_ref().filter(|out| out.version.as_deref() == version);
        match out.and_then(|out| out.since) {
            Some(since) if since.elapsed() >= self.options.settle => Spread::Settled,
            _ => Spread::Settling,
        }
    }

    /// Writes the Secret, unless it isn't any more what was read, and returns its version.
    async fn write(
        &self,
        secret: Option<Secret>,
        bundle: &Bundle,
    ) -> Result<Option<String>, kube::Error> {
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let is_new = secret.is_none();
        let mut secret = secret.unwrap_or_else(|| self.empty());
        bundle.write(secret.data.get_or_insert_default());
        let written = if is_new {
            self.secrets.create(&parameters, &secret).await?
        } else {
            self.secrets.replace(&self.options.secret, &parameters, &secret).await?
        };
        Ok(written.metadata.resource_version)
    }

    fn empty(&self) -> Secret {
        let metadata = ObjectMeta {
            name: Some(self.options.secret.clone()),
            namespace: Some(self.options.namespace.clone()),
            ..ObjectMeta::default()
        };
        Secret { metadata, type_: Some("Opaque".to_owned()), ..Secret::default() }
    }

    /// Serves what the Secret holds, and has it published.
    fn take(&mut self, version: Option<String>, bundle: Bundle) {
        if bundle.serving.is_some() && bundle.serving != self.served {
            self.serve(&bundle);
        }
        if self.out.as_ref().is_none_or(|out| out.version != version) {
            self.out = Some(Out { version, bundle, since: None });
        }
    }

    fn serve(&mut self, bundle: &Bundle) {
        let Some(pair) = &bundle.serving else { return };
        match inspect::pair(&pair.certificate, &pair.key) {
            Ok((key, span)) => {
                self.serving.set(key, span.not_after);
                self.served = Some(pair.clone());
                tracing::info!(valid_until = span.not_after, "serving certificate in use");
            }
            Err(error) => tracing::debug!(error = sentence(&error), "no serving certificate"),
        }
    }

    /// Makes sure that API servers trust what is served.
    async fn publish(&mut self) -> Result<(), super::configurations::PublishError> {
        let Some(out) = &mut self.out else { return Ok(()) };
        let bundle = out.bundle.published();
        if bundle.is_empty() {
            return Ok(());
        }
        match publish(self.client, &self.options.configuration, &bundle).await {
            Ok(Published::Already) => out.since = out.since.or_else(|| Some(Instant::now())),
            Ok(Published::Now) => out.since = Some(Instant::now()),
            Err(error) => {
                out.since = None;
                return Err(error);
            }
        }
        Ok(())
    }
}
