//! `tolerarch inspect`: the platforms of images, and how they were determined. Decides on a Pod with nothing but the image,
//! and records what registries are asked.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures_util::future::join_all;
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::output::{self, Colour, Look, Output, Row, count, print, shown, table};
use super::session::{Decided, FailOn, Session, cause, run_alone};
use super::{Failure, Shared};
use tolerarch_core::image::{ImageRef, PlatformSet, ReferenceError, Support};
use tolerarch_core::pod::Pod;
use tolerarch_core::policy::Pool;
use tolerarch_core::reason::Reason;
use tolerarch_images::registry::trace::{Fate, TracedEntry, TracedRequest};
use tolerarch_images::registry::{RequestKind, Skip};

/// Characters of a digest that people compare.
const DIGEST: usize = "sha256:".len() + 12;

#[derive(Debug, Args)]
pub(super) struct Inspect {
    /// Images as Pods name them: nginx, ghcr.io/acme/agent:3, registry.example.com/team/app@sha256:…
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
    // Only the configuration of the cluster counts: namespaces are taken as kubectl takes them there.
    #[command(flatten)]
    access: super::kubernetes::Access,
    /// How the result is written: aligned columns, or one JSON document
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Compare with the pools for the namespaces with the label tolerarch.io/profile=NAME
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// List every request: what was asked, with which kind of credential, and what came back
    #[arg(long)]
    explain: bool,
}

impl Inspect {
    pub(super) fn run(self, shared: &Shared) -> Result<ExitCode, Failure> {
        let images: Vec<ImageRef> = self.images.iter().filter_map(|given| given.parse().ok()).collect();
        let (cluster, profile) = (Some(&self.access), self.profile.as_deref());
        let inspected = run_alone(shared, cluster, profile, &images, async |session: Session| {
            session.progress.show(&format!("asking for {}", count(self.images.len() as u64, "image")));
            join_all(self.images.iter().map(|given| Inspected::of(given, &session))).await
        })?;
        print(&match self.output {
            Output::Table => {
                let look = Look::of_stdout(&shared.environment);
                let all: Vec<String> = inspected.iter().map(|one| one.table(self.explain, look)).collect();
                all.join("\n")
            }
            Output::Json => output::json(&json!({ "images": inspected }))?,
        })?;
        Ok(if inspected.iter().any(Inspected::failed) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// What is known of one image, as `-o json` has it. Members are added, never renamed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Inspected {
    image: String,
    reference: Option<String>,
    reason: Reason,
    pools: Vec<String>,
    error: Option<String>,
    digest: Option<String>,
    media_type: Option<String>,
    platforms: Option<PlatformSet>,
    #[serde(skip)]
    is_artifact: bool,
    /// The platforms that it lacks of any pool.
    lacks: PlatformSet,
    /// Those that it lacks of each pool on which it does not run, by the pool's name.
    #[serde(skip)]
    lacks_of: Vec<(String, PlatformSet)>,
    source: Option<String>,
    milliseconds: u64,
    entries: Vec<Entry>,
    requests: Vec<Request>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    platform: String,
    digest: String,
    media_type: String,
    depth: usize,
    counts: bool,
    /// Why it counts, or why not; the words are part of the documented shape.
    why: &'static str,
    platforms: PlatformSet,
    /// The same for people.
    #[serde(skip)]
    meaning: String,
}

#[derive(Serialize)]
struct Request {
    kind: &'static str,
    method: String,
    url: String,
    /// The scheme.
    authorization: Option<String>,
    credential: Option<&'static str>,
    /// The status, or the kind of failure.
    answer: String,
    milliseconds: u64,
}

impl Inspected {
    async fn of(given: &str, session: &Session) -> Self {
        let begun = Instant::now();
        let image: Result<ImageRef, ReferenceError> = given.parse();
        let pod = json!({"metadata": {}, "spec": {"containers": [{"image": given}]}});
        let policy = &session.snapshot.policy;
        let (decided, overridden) = match Pod::of_value(&pod) {
            Ok(pod) => (
                session.decide("", &pod, None).await,
                pod.images().first().and_then(|usage| policy.override_for(usage)),
            ),
            Err(_) => (Decided::unchanged(Reason::Internal), None),
        };
        let trace = image.as_ref().map(|image| session.traces.of(image)).unwrap_or_default();
        let found = trace.found;
        let platforms = overridden.or_else(|| found?.support.runs_on());
        let lacks = |pool: &Pool| {
            let lacking = pool.platforms.difference(platforms?);
            (!lacking.is_empty()).then(|| (pool.name.clone(), lacking))
        };
        let lacks_of: Vec<(String, PlatformSet)> = policy.pools.iter().filter_map(lacks).collect();
        let brought = |request: &&TracedRequest| {
            request.kind == RequestKind::Manifest && matches!(request.outcome, Some(Ok(200..=299)))
        };
        let origin = |request: &TracedRequest| request.url.origin().ascii_serialization();
        let source = overridden.map(|_| "overrides".to_owned());
        Self {
            image: given.to_owned(),
            reference: image.as_ref().ok().map(ToString::to_string),
            reason: decided.reason,
            pools: decided.pools,
            error: image.map_or_else(|error| Some(error.to_string()), |_| cause(&trace)),
            digest: found.map(|found| found.digest.to_string()),
            platforms,
            is_artifact: found.is_some_and(|found| found.support == Support::Artifact),
            lacks: lacks_of.iter().fold(PlatformSet::EMPTY, |all, (_, lacking)| all.union(*lacking)),
            lacks_of,
            source: source.or_else(|| trace.requests.iter().find(brought).map(origin)),
            media_type: Some(trace.media_type).filter(|text| !text.is_empty()),
            milliseconds: milliseconds(begun.elapsed()),
            entries: trace.entries.into_iter().map(Entry::of).collect(),
            requests: trace.requests.into_iter().map(Request::of).collect(),
        }
    }

    fn failed(&self) -> bool {
        FailOn::of(self.reason).contains(&FailOn::Unknown)
    }

    fn table(&self, explain: bool, look: Look) -> String {
        let colour = match (self.failed(), self.pools.is_empty()) {
            (true, _) => Colour::Yellow,
            (_, true) => Colour::Red,
            (_, false) => Colour::Green,
        };
        let name = self.reference.as_ref().unwrap_or(&self.image);
        let mut text = colour.paint(&shown(name), look) + "\n";
        let mut line = |name: &str, value: &str| text += &format!("  {name:<10} {}\n", shown(value));
        let pools = if self.pools.is_empty() { "no pool".to_owned() } else { self.pools.join(", ") };
        line("verdict", &format!("{}, opens {pools}", self.reason));
        self.error.iter().for_each(|error| line("error", error));
        match self.platforms {
            Some(platforms) => line("platforms", &platforms.to_string()),
            None if self.is_artifact => line("platforms", "cannot be said: an artifact, no image"),
            None => {}
        }
        for (pool, lacking) in &self.lacks_of {
            line("lacks", &format!("{lacking} of the pool {pool}"));
        }
        self.digest.iter().for_each(|digest| line("digest", digest));
        self.media_type.iter().for_each(|media_type| line("type", media_type));
        let asked = count(self.requests.len() as u64, "request");
        let source = self.source.as_ref().map(|source| format!("{source}, ")).unwrap_or_default();
        line("from", &format!("{source}{asked}, {} ms", self.milliseconds));
        if !self.entries.is_empty() {
            let rows: Vec<Row> = self.entries.iter().map(Entry::row).collect();
            text += &format!("\n{}", table(&["ENTRY", "COUNTS", "AS", "DIGEST"], &rows, "  ", look));
        }
        if explain && !self.requests.is_empty() {
            let rows: Vec<Row> = self.requests.iter().map(Request::row).collect();
            text += &format!("\n{}", table(&["ASKED", "SHOWN", "ANSWER", "MS", "URL"], &rows, "  ", look));
        }
        text
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Entry {
    fn of(entry: TracedEntry) -> Self {
        let TracedEntry { info, depth, fate } = entry;
        let why = match fate {
            Fate::Runs(set) if !set.is_empty() => "runs",
            Fate::Runs(_) if info.platform.starts_with("linux/") || info.platform.is_empty() => {
                "no-such-node"
            }
            Fate::Runs(_) => "other-os",
            Fate::Outside => "outside-its-index",
            Fate::Shadowed => "another-entry-is-chosen",
            Fate::Contradicted(_) => "config-contradicts",
            Fate::Missing => "manifest-missing",
            Fate::Unknown => "unknown",
            Fate::Index => "index",
            Fate::Skipped(Skip::Attestation) => "attestation",
            Fate::Skipped(Skip::UnknownPlatform) => "unknown-platform",
            Fate::Skipped(Skip::Artifact) => "artifact",
            Fate::Skipped(Skip::MediaType) => "media-type",
        };
        let platforms = if let Fate::Runs(set) = fate { set } else { PlatformSet::EMPTY };
        let meaning = match fate {
            Fate::Runs(set) if !set.is_empty() => set.to_string(),
            Fate::Index => "an index, see below".to_owned(),
            Fate::Skipped(Skip::MediaType) => format!("media type {}", info.media_type),
            Fate::Contradicted(config) if !config.is_empty() => {
                format!("its config is for {}", config.architectures().join(", "))
            }
            _ => why.replace('-', " "),
        };
        let counts = !platforms.is_empty();
        let (platform, digest, media_type) = (info.platform, info.digest, info.media_type);
        Self { platform, digest, media_type, depth, counts, why, platforms, meaning }
    }

    fn row(&self) -> Row {
        let nested = "  ".repeat(self.depth.saturating_sub(1));
        let platform = if self.platform.is_empty() { "-" } else { &self.platform };
        let (counts, colour) = match self.why {
            "runs" => ("yes", Colour::Green),
            "index" => ("-", Colour::Plain),
            _ => ("no", Colour::Faint),
        };
        let digest: String = self.digest.chars().take(DIGEST).collect();
        let cells =
            vec![format!("{nested}{}", shown(platform)), counts.to_owned(), shown(&self.meaning), digest];
        Row { colour, cells }
    }
}

impl Request {
    fn of(request: TracedRequest) -> Self {
        let answer = match request.outcome {
            Some(Ok(status)) => status.to_string(),
            Some(Err(kind)) => kind.to_owned(),
            None => "none yet".to_owned(),
        };
        Self {
            kind: request.kind.as_str(),
            method: request.method,
            url: request.url.into(),
            authorization: request.authorization.map(|scheme| scheme.to_lowercase()),
            credential: request.credential,
            answer,
            milliseconds: milliseconds(request.took),
        }
    }

    fn row(&self) -> Row {
        let credential = match (&self.authorization, self.credential) {
            (Some(scheme), Some(credential)) => format!("{scheme}, {credential}"),
            _ => "-".to_owned(),
        };
        let asked = format!("{} {}", self.method, self.kind);
        let cells =
            vec![asked, credential, self.answer.clone(), self.milliseconds.to_string(), shown(&self.url)];
        Row { colour: Colour::Plain, cells }
    }
}
