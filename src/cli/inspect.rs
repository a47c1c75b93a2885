//! `tolerarch inspect`: the platforms of images, and how they were determined. Decides on a Pod that has only the image,
//! and records the requests to registries.

use std::process::ExitCode;

use clap::Args;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::output::{self, Colour, Output, Row, count, paragraphs, print, sanitized, table};
use super::session::{FailOn, Session, cause, run_without_cluster_pools};
use super::{Failure, Shared};
use tolerarch_core::image::{ImageRef, PlatformSet, ReferenceError, Support};
use tolerarch_core::pod::Pod;
use tolerarch_core::policy::Cause;
use tolerarch_engine::decide::{Examined, ImageState, PoolState};
use tolerarch_images::registry::trace::{EntryOutcome, Trace, TracedEntry, TracedRequest};
use tolerarch_images::registry::{EntryInfo, RequestKind, Skip};

/// Number of characters of a digest in a table: enough to compare digests.
const DIGEST: usize = "sha256:".len() + 12;

#[derive(Debug, Args)]
pub(super) struct Inspect {
    /// The images, as Pods name them: nginx, ghcr.io/acme/agent:3, registry.example.com/team/app@sha256:…
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
    // Only the cluster's configuration and its failed images count; `--namespace` adds those of that namespace.
    #[command(flatten)]
    access: super::kubernetes::Access,
    /// The format of the result: aligned columns, or one JSON document
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Compare with the pools for the namespaces with the label tolerarch.io/profile=NAME
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// List every request with the kind of its credential and the answer
    #[arg(long)]
    explain: bool,
}

impl Inspect {
    pub(super) fn run(self, shared: &Shared) -> Result<ExitCode, Failure> {
        let images = self.images.iter().filter_map(|given| given.parse().ok());
        let inspected = run_without_cluster_pools(
            shared,
            Some(&self.access),
            self.profile.as_deref(),
            images,
            async |session: Session| {
                let images = count(self.images.len() as u64, "image");
                session.progress.show(&format!("looking up {images}"));
                let namespace = self.access.namespace.as_deref().unwrap_or_default();
                let images = self.images.iter();
                join_all(images.map(|given| Inspected::of(given, namespace, &session))).await
            },
        )?;
        print(&match self.output {
            Output::Table => {
                let width = output::columns();
                paragraphs(inspected.iter().map(|one| one.table(self.explain, width)))
            }
            Output::Json => {
                let images: Value = inspected.iter().map(Inspected::json).collect();
                output::json(&json!({ "images": images }))?
            }
        })?;
        Ok(if inspected.iter().any(Inspected::is_unknown) {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}

struct Inspected {
    /// Image as the user wrote it.
    image: String,
    reference: Result<ImageRef, ReferenceError>,
    examined: Examined,
    /// Facts about the image.
    state: ImageState,
    error: Option<String>,
    /// Source of the image's platforms: `overrides`, or the origin that served the manifest.
    source: Option<String>,
    trace: Trace,
    milliseconds: u128,
}

impl Inspected {
    async fn of(given: &str, namespace: &str, session: &Session) -> Self {
        let start = Instant::now();
        let reference: Result<ImageRef, ReferenceError> = given.parse();
        let pod = json!({"metadata": {}, "spec": {"containers": [{"image": given}]}});
        let pod = Pod::of_value(&pod).unwrap_or_default();
        let policy = &session.policy;
        let mut examined = session.examine(policy, namespace, &pod).await;
        let state = examined.images.pop().unwrap_or_default();
        let usages = pod.images();
        let usage = usages.first();
        let is_overridden = usage.is_some_and(|usage| policy.override_for(usage).is_some());
        let (trace, error) = match &reference {
            Ok(image) => {
                let trace = session.traces.trace_of(image);
                let error = cause(&trace, &[]);
                (trace, error)
            }
            Err(error) => (Trace::default(), Some(error.to_string())),
        };
        let source = if is_overridden {
            Some("overrides".to_owned())
        } else {
            origin(&trace)
        };
        let milliseconds = start.elapsed().as_millis();
        Self {
            image: given.to_owned(),
            reference,
            examined,
            state,
            error,
            source,
            trace,
            milliseconds,
        }
    }

    fn is_unknown(&self) -> bool {
        FailOn::of(self.examined.reason).contains(&FailOn::Unknown)
    }

    /// Returns the JSON form. Members are added, never renamed.
    fn json(&self) -> Value {
        let Self {
            image,
            reference,
            examined,
            state,
            trace,
            milliseconds,
            ..
        } = self;
        json!({
            "image": image,
            "reference": reference.as_ref().ok().map(ToString::to_string),
            "reason": examined.reason,
            "pools": examined.open_pools(),
            "error": self.error,
            "digest": trace.resolved.map(|manifest| manifest.digest.to_string()),
            "mediaType": Some(&trace.media_type).filter(|text| !text.is_empty()),
            "platforms": state.platforms,
            // Platforms of any pool.
            "lacks": state.lacks,
            "failed": state.failed,
            "source": self.source,
            "milliseconds": milliseconds,
            "entries": trace.entries.iter().map(entry_json).collect::<Value>(),
            "requests": trace.requests.iter().map(request_json).collect::<Value>(),
        })
    }

    fn table(&self, explain: bool, width: Option<usize>) -> String {
        let colour = if self.is_unknown() {
            Colour::Yellow
        } else if self.examined.open_pools().is_empty() {
            Colour::Red
        } else {
            Colour::Green
        };
        let name = match &self.reference {
            Ok(reference) => reference.to_string(),
            Err(_) => self.image.clone(),
        };
        let mut text = colour.paint(&sanitized(&name)) + "\n";
        for (name, value) in self.facts() {
            text += &format!("  {name:<10} {}\n", sanitized(&value));
        }
        let entries = self.trace.entries.iter().map(entry_row);
        let header = ["ENTRY", "COUNTS", "AS", "DIGEST"];
        let mut parts = vec![text, table(&header, entries, "  ", width)];
        if explain {
            let requests = self.trace.requests.iter().map(request_row);
            let header = ["ASKED", "SHOWN", "ANSWER", "MS", "URL"];
            parts.push(table(&header, requests, "  ", width));
        }
        paragraphs(parts)
    }

    /// Returns the facts about the image, each with its name.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let Self {
            examined,
            state,
            trace,
            milliseconds,
            ..
        } = self;
        let pools = examined.open_pools().join(", ");
        let pools = if pools.is_empty() { "no pool" } else { &pools };
        let mut facts = vec![("verdict", format!("{}, opens {pools}", examined.reason))];
        let mut add = |name, value| facts.push((name, value));
        if let Some(error) = &self.error {
            add("error", error.clone());
        }
        let is_artifact = trace
            .resolved
            .is_some_and(|manifest| manifest.support == Support::Artifact);
        match state.platforms {
            Some(platforms) => add("platforms", platforms.to_string()),
            None if is_artifact => {
                let why = "cannot be said: an artifact, no image";
                add("platforms", why.to_owned());
            }
            None => {}
        }
        let mut failed = PlatformSet::EMPTY;
        if let Some(failure) = state.failed {
            add("failed", Cause::Failed(failure).to_string());
            failed = failure.platforms;
        }
        for PoolState { name, lacks, .. } in &examined.pools {
            let lacking = lacks.unwrap_or_default().difference(failed);
            if !lacking.is_empty() {
                add("lacks", format!("{lacking} of the pool {name}"));
            }
        }
        if let Some(manifest) = trace.resolved {
            add("digest", manifest.digest.to_string());
        }
        if !trace.media_type.is_empty() {
            add("type", trace.media_type.clone());
        }
        let requests = count(trace.requests.len() as u64, "request");
        let cost = format!("{requests}, {milliseconds} ms");
        match &self.source {
            Some(source) => add("from", format!("{source}, {cost}")),
            None => add("from", cost),
        }
        facts
    }
}

/// Returns the registry that served the manifest.
fn origin(trace: &Trace) -> Option<String> {
    let has_served = |request: &&TracedRequest| {
        request.kind == RequestKind::Manifest && matches!(request.outcome, Some(Ok(200..=299)))
    };
    let request = trace.requests.iter().find(has_served)?;
    Some(request.url.origin().ascii_serialization())
}

/// Returns why an entry counts or not; the words are part of the documented JSON.
fn why(TracedEntry { info, outcome, .. }: &TracedEntry) -> &'static str {
    match outcome {
        EntryOutcome::Runs(set) if !set.is_empty() => "runs",
        EntryOutcome::Runs(_)
            if info.platform.starts_with("linux/") || info.platform.is_empty() =>
        {
            "no-such-node"
        }
        EntryOutcome::Runs(_) => "other-os",
        EntryOutcome::Outside => "outside-its-index",
        EntryOutcome::Shadowed => "another-entry-is-chosen",
        EntryOutcome::Contradicted(_) => "config-contradicts",
        EntryOutcome::Missing => "manifest-missing",
        EntryOutcome::Unknown => "unknown",
        EntryOutcome::Index => "index",
        EntryOutcome::Skipped(Skip::Attestation) => "attestation",
        EntryOutcome::Skipped(Skip::UnknownPlatform) => "unknown-platform",
        EntryOutcome::Skipped(Skip::Artifact) => "artifact",
        EntryOutcome::Skipped(Skip::MediaType) => "media-type",
    }
}

fn entry_json(entry: &TracedEntry) -> Value {
    let EntryInfo {
        platform,
        digest,
        media_type,
    } = &entry.info;
    let platforms = if let EntryOutcome::Runs(set) = entry.outcome {
        set
    } else {
        PlatformSet::EMPTY
    };
    json!({
        "platform": platform, "digest": digest, "mediaType": media_type, "depth": entry.depth,
        "counts": !platforms.is_empty(), "why": why(entry), "platforms": platforms,
    })
}

fn entry_row(entry: &TracedEntry) -> Row {
    let EntryInfo {
        platform,
        digest,
        media_type,
    } = &entry.info;
    let why = why(entry);
    let meaning = match entry.outcome {
        EntryOutcome::Runs(set) if !set.is_empty() => set.to_string(),
        EntryOutcome::Index => "an index, see below".to_owned(),
        EntryOutcome::Skipped(Skip::MediaType) => format!("media type {media_type}"),
        EntryOutcome::Contradicted(config) if !config.is_empty() => {
            format!("its config is for {}", config.architectures().join(", "))
        }
        _ => why.replace('-', " "),
    };
    let nested = "  ".repeat(entry.depth.saturating_sub(1));
    let platform = if platform.is_empty() { "-" } else { platform };
    let (counts, colour) = match why {
        "runs" => ("yes", Colour::Green),
        "index" => ("-", Colour::Plain),
        _ => ("no", Colour::Faint),
    };
    let digest: String = digest.chars().take(DIGEST).collect();
    Row {
        colour,
        cells: vec![
            format!("{nested}{platform}"),
            counts.to_owned(),
            meaning,
            digest,
        ],
    }
}

/// Returns the status, or the kind of failure.
fn answer(request: &TracedRequest) -> String {
    match request.outcome {
        Some(Ok(status)) => status.to_string(),
        Some(Err(kind)) => kind.to_owned(),
        None => "none yet".to_owned(),
    }
}

fn request_json(request: &TracedRequest) -> Value {
    let TracedRequest {
        kind,
        method,
        url,
        authorization,
        credential_kind,
        duration,
        ..
    } = request;
    json!({
        "kind": kind.as_str(), "method": method, "url": url.as_str(),
        "authorization": authorization.as_ref().map(|scheme| scheme.to_lowercase()),
        "credential": credential_kind, "answer": answer(request), "milliseconds": duration.as_millis(),
    })
}

fn request_row(request: &TracedRequest) -> Row {
    let TracedRequest {
        kind,
        method,
        url,
        authorization,
        credential_kind,
        duration,
        ..
    } = request;
    let credential = match (authorization, credential_kind) {
        (Some(scheme), Some(credential)) => format!("{}, {credential}", scheme.to_lowercase()),
        _ => "-".to_owned(),
    };
    Row {
        colour: Colour::Plain,
        cells: vec![
            format!("{method} {}", kind.as_str()),
            credential,
            answer(request),
            duration.as_millis().to_string(),
            url.to_string(),
        ],
    }
}
