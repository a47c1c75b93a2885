//! `tolerarch inspect`: the platforms of images, and how they were determined. Decides on a Pod with nothing but the image,
//! and records what registries are asked.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::output::{Colour, Look, Output, Row, document, print, shown, table};
use super::session::{Decided, FailOn, Session, ask, cause};
use super::{Shared, fail};
use tolerarch_core::image::{ImageRef, PlatformSet, ReferenceError, Support};
use tolerarch_core::pod::Pod;
use tolerarch_core::policy::Pool;
use tolerarch_images::registry::trace::{Fate, Trace, TracedEntry, TracedRequest};
use tolerarch_images::registry::{RequestKind, Skip};
use tolerarch_support::environment::Environment;

/// Characters of a digest that people compare.
const DIGEST: usize = "sha256:".len() + 12;

#[derive(Debug, Args)]
pub(super) struct Inspect {
    /// Images as Pods name them: nginx, ghcr.io/acme/agent:3, registry.example.com/team/app@sha256:…
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
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
    pub(super) fn run(self, shared: &Shared) -> ExitCode {
        let images: Vec<ImageRef> = self.images.iter().filter_map(|given| given.parse().ok()).collect();
        let inspected = ask(shared, self.profile.as_deref(), &images, async |session: Session| {
            let many = self.images.len();
            let images = if many == 1 { "image" } else { "images" };
            session.progress.show(&format!("asking for {many} {images}"));
            let all = self.images.iter().map(|given| Inspected::of(given, &session));
            let all = join_all(all).await;
            session.progress.show("");
            all
        });
        let inspected = match inspected {
            Ok(inspected) => inspected,
            Err(status) => return status,
        };
        if let Err(error) = self.write(&inspected, &shared.environment) {
            return fail(&error);
        }
        if inspected.iter().any(Inspected::failed) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    fn write(&self, inspected: &[Inspected], environment: &Environment) -> io::Result<()> {
        match self.output {
            Output::Table => {
                let look = Look::of_stdout(environment);
                let all: Vec<String> = inspected.iter().map(|one| one.table(self.explain, look)).collect();
                print(&all.join("\n"))
            }
            Output::Json => {
                let all: Vec<Value> = inspected.iter().map(Inspected::json).collect();
                print(&document(&format!("{:#}", json!({ "images": all }))))
            }
        }
    }
}

/// What is known of one image.
struct Inspected {
    given: String,
    /// For each pool that it does not run on, by name: the platforms that it lacks.
    lacks: Vec<(String, PlatformSet)>,
    image: Result<ImageRef, ReferenceError>,
    decided: Option<Decided>,
    /// What the configuration says of it, so that no registry was asked.
    overridden: Option<PlatformSet>,
    trace: Trace,
    took: Duration,
}

impl Inspected {
    async fn of(given: &str, session: &Session) -> Self {
        let begun = Instant::now();
        let image: Result<ImageRef, _> = given.parse();
        let pod = json!({"metadata": {}, "spec": {"containers": [{"image": given}]}});
        let policy = &session.snapshot.policy;
        let (decided, overridden) = match Pod::of_value(&pod) {
            Ok(pod) => (
                Some(session.decide("", &pod, None).await),
                pod.images().first().and_then(|usage| policy.override_for(usage)),
            ),
            Err(_) => (None, None),
        };
        let trace = image.as_ref().map(|image| session.traces.of(image)).unwrap_or_default();
        let runs_on = overridden.or_else(|| trace.found.and_then(|found| found.support.runs_on()));
        let lacks = |pool: &Pool| {
            let lacking = pool.platforms.difference(runs_on?);
            (!lacking.is_empty()).then(|| (pool.name.clone(), lacking))
        };
        let lacks = policy.pools.iter().filter_map(lacks).collect();
        Self { given: given.to_owned(), lacks, image, decided, overridden, trace, took: begun.elapsed() }
    }

    /// Whether its platforms could not be determined.
    fn failed(&self) -> bool {
        self.decided.as_ref().is_none_or(|decided| FailOn::of(decided.reason).contains(&FailOn::Unknown))
    }

    fn reason(&self) -> &'static str {
        self.decided.as_ref().map_or("internal", |decided| decided.reason.as_str())
    }

    fn pools(&self) -> Vec<&str> {
        self.decided.iter().flat_map(|decided| &decided.pools).map(String::as_str).collect()
    }

    fn error(&self) -> Option<String> {
        match &self.image {
            Err(error) => Some(error.to_string()),
            Ok(_) => cause(&self.trace),
        }
    }

    /// The request that brought the manifest.
    fn source(&self) -> Option<&TracedRequest> {
        let brought = |request: &&TracedRequest| {
            request.kind == RequestKind::Manifest && matches!(request.outcome, Some(Ok(200..=299)))
        };
        self.trace.requests.iter().find(brought)
    }

    /// Where its platforms come from.
    fn origin(&self) -> Option<String> {
        if self.overridden.is_some() { Some("overrides".to_owned()) } else { self.source().map(origin) }
    }

    fn platforms(&self) -> Option<PlatformSet> {
        self.overridden.or_else(|| self.trace.found.and_then(|found| found.support.runs_on()))
    }

    /// What it lacks of any pool.
    fn lacking(&self) -> PlatformSet {
        self.lacks.iter().fold(PlatformSet::EMPTY, |all, (_, lacking)| all.union(*lacking))
    }

    fn table(&self, explain: bool, look: Look) -> String {
        let Trace { requests, media_type, entries, found, .. } = &self.trace;
        let mut lines: Vec<(&str, String)> = Vec::new();
        let pools = self.pools();
        let opens =
            if pools.is_empty() { "opens no pool".to_owned() } else { format!("opens {}", pools.join(", ")) };
        lines.push(("verdict", format!("{}, {opens}", self.reason())));
        if let Some(error) = self.error() {
            lines.push(("error", error));
        }
        if let Some(platforms) = self.overridden {
            lines.push(("platforms", platforms.to_string()));
        } else if let Some(found) = found {
            let platforms = match found.support {
                Support::Index(set) | Support::Single(set) => set.to_string(),
                Support::Artifact => "cannot be said: an artifact, no image".to_owned(),
            };
            lines.push(("platforms", platforms));
        }
        for (pool, lacking) in &self.lacks {
            lines.push(("lacks", format!("{lacking} of the pool {pool}")));
        }
        if let Some(found) = found {
            lines.push(("digest", found.digest.to_string()));
        }
        if !media_type.is_empty() {
            lines.push(("type", media_type.clone()));
        }
        let asked = match requests.len() {
            1 => "1 request".to_owned(),
            count => format!("{count} requests"),
        };
        let source = self.origin().map_or_else(String::new, |origin| format!("{origin}, "));
        lines.push(("from", format!("{source}{asked}, {} ms", milliseconds(self.took))));

        let name = self.image.as_ref().map_or(&*self.given, ImageRef::as_str);
        let colour = match (self.failed(), pools.is_empty()) {
            (true, _) => Colour::Yellow,
            (_, true) => Colour::Red,
            (_, false) => Colour::Green,
        };
        let mut text = colour.paint(&shown(name), look) + "\n";
        for (name, value) in lines {
            text += &format!("  {name:<10} {}\n", shown(&value));
        }
        if !entries.is_empty() {
            let rows: Vec<Row> = entries.iter().map(entry_row).collect();
            text += &format!("\n{}", table(&["ENTRY", "COUNTS", "AS", "DIGEST"], &rows, "  ", look));
        }
        if explain && !requests.is_empty() {
            let rows: Vec<Row> = requests.iter().map(request_row).collect();
            text += &format!("\n{}", table(&["ASKED", "SHOWN", "ANSWER", "MS", "URL"], &rows, "  ", look));
        }
        text
    }

    /// The documented shape; members are added, never renamed.
    fn json(&self) -> Value {
        let Trace { requests, media_type, entries, found, .. } = &self.trace;
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        json!({
            "image": self.given,
            "reference": self.image.as_ref().ok().map(ImageRef::as_str),
            "reason": self.reason(),
            "pools": self.pools(),
            "error": self.error(),
            "digest": found.map(|found| found.digest.to_string()),
            "mediaType": text(media_type),
            "platforms": self.platforms().map(|set| set.names().collect::<Vec<_>>()),
            "lacks": self.lacking().names().collect::<Vec<_>>(),
            "source": self.origin(),
            "milliseconds": milliseconds(self.took),
            "entries": entries.iter().map(entry_json).collect::<Vec<_>>(),
            "requests": requests.iter().map(request_json).collect::<Vec<_>>(),
        })
    }
}

fn origin(request: &TracedRequest) -> String {
    request.url.origin().ascii_serialization()
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Why an entry of an index counts, or why not; the words are part of the documented shape.
fn why(entry: &TracedEntry) -> &'static str {
    match entry.fate {
        Fate::Runs(set) if !set.is_empty() => "runs",
        Fate::Runs(_) if entry.info.platform.starts_with("linux/") => "no-such-node",
        Fate::Runs(_) if entry.info.platform.is_empty() => "no-such-node",
        Fate::Runs(_) => "other-os",
        Fate::Outside => "outside-its-index",
        Fate::Shadowed => "another-entry-is-chosen",
        Fate::Contradicted(_) => "config-contradicts",
        Fate::Index => "index",
        Fate::Skipped(Skip::Attestation) => "attestation",
        Fate::Skipped(Skip::UnknownPlatform) => "unknown-platform",
        Fate::Skipped(Skip::Artifact) => "artifact",
        Fate::Skipped(Skip::MediaType) => "media-type",
    }
}

fn entry_row(entry: &TracedEntry) -> Row {
    let TracedEntry { info, depth, fate } = entry;
    let nested = "  ".repeat(depth.saturating_sub(1));
    let platform = if info.platform.is_empty() { "-" } else { &info.platform };
    let (counts, meaning, colour) = match fate {
        Fate::Runs(set) if !set.is_empty() => ("yes", set.to_string(), Colour::Green),
        Fate::Index => ("-", "an index, see below".to_owned(), Colour::Plain),
        _ => ("no", why(entry).replace('-', " "), Colour::Faint),
    };
    let digest: String = info.digest.chars().take(DIGEST).collect();
    let meaning = match fate {
        Fate::Skipped(Skip::MediaType) => format!("{meaning} {}", info.media_type),
        Fate::Contradicted(config) if !config.is_empty() => {
            format!("its config is for {}", config.architectures().join(", "))
        }
        _ => meaning,
    };
    Row {
        colour,
        cells: vec![format!("{nested}{}", shown(platform)), counts.to_owned(), shown(&meaning), digest],
    }
}

fn entry_json(entry: &TracedEntry) -> Value {
    let TracedEntry { info, depth, fate } = entry;
    let platforms = if let Fate::Runs(set) = fate { *set } else { PlatformSet::EMPTY };
    json!({
        "platform": info.platform,
        "digest": info.digest,
        "mediaType": info.media_type,
        "depth": depth,
        "counts": !platforms.is_empty(),
        "why": why(entry),
        "platforms": platforms.names().collect::<Vec<_>>(),
    })
}

/// The status, or the kind of failure.
fn answer(request: &TracedRequest) -> String {
    match request.outcome {
        Some(Ok(status)) => status.to_string(),
        Some(Err(kind)) => kind.to_owned(),
        None => "none yet".to_owned(),
    }
}

fn request_row(request: &TracedRequest) -> Row {
    let asked = format!("{} {}", request.method, request.kind.as_str());
    let credential = match (&request.authorization, request.credential) {
        (Some(scheme), Some(credential)) => format!("{}, {credential}", scheme.to_lowercase()),
        _ => "-".to_owned(),
    };
    let cells = vec![
        asked,
        credential,
        answer(request),
        milliseconds(request.took).to_string(),
        shown(request.url.as_str()),
    ];
    Row { colour: Colour::Plain, cells }
}

fn request_json(request: &TracedRequest) -> Value {
    json!({
        "kind": request.kind.as_str(),
        "method": request.method,
        "url": request.url.as_str(),
        "authorization": request.authorization.as_deref().map(str::to_lowercase),
        "credential": request.credential,
        "answer": answer(request),
        "milliseconds": milliseconds(request.took),
    })
}
