//! `tolerarch report`: the share of a cluster that could run on every platform, and what keeps the rest from it. Reads
//! with the user's own rights; each image is looked up once, for any number of Pods.

mod html;
mod json;
mod sections;
mod text;

use std::collections::BTreeMap;
use std::mem;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::SystemTime;

use clap::{Args, ValueEnum};

use super::advice::{EXCLUDED, unread_pull_secrets};
use super::output::{columns, count, document, print};
use super::session::{Session, run};
use super::survey::Survey;
use super::{Failure, Shared};
use tolerarch_core::policy::Cause;
use tolerarch_core::reason::Reason;
use tolerarch_engine::census::{Coverage, Summary};
use tolerarch_engine::decide::Examined;

#[derive(Debug, Args)]
pub(super) struct Command {
    #[command(flatten)]
    access: super::kubernetes::Access,
    /// What is ranked by what is kept from the pools; the page and -o json have all three
    #[arg(long, value_enum, default_value_t)]
    by: By,
    /// How the result is written: aligned columns, one JSON document, or a page of HTML that loads nothing
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum By {
    Workload,
    #[default]
    Image,
    Namespace,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    #[default]
    Table,
    Json,
    Html,
}

/// Decision on a Pod that cannot be read within the limits on untrusted input.
static UNREADABLE: LazyLock<Examined> = LazyLock::new(|| Examined::skipped(Reason::Malformed));

#[derive(Default)]
struct Report<'p> {
    summary: Summary<'p>,
    /// Scope and time of the report.
    of: String,
    /// Messages on failed lookups, by the image.
    causes: BTreeMap<&'p str, String>,
    /// Number of requests that each registry lets pass before it throttles.
    rate_limits: BTreeMap<String, u32>,
    notes: Vec<String>,
}

impl Command {
    pub(super) fn run(self, shared: &Shared) -> Result<ExitCode, Failure> {
        let namespace = self.access.namespace.as_deref();
        let (session, survey, examined) = run(shared, async |progress| {
            progress.show("asking the API server");
            let client = self.access.connect(&shared.environment)?;
            let configured = self.access.configured(shared, &client).await?;
            let mut survey = Survey::read(&client, namespace, &progress).await?;
            let images = survey.images();
            let mut session =
                Session::start(shared, configured, progress, Some(&client), images).await?;
            let examined = survey.examine(&session).await;
            let mut unread = 0;
            for pod in &survey.pods {
                let Some(place) = pod.shape else { continue };
                if let (Some(examined), Some(shape)) =
                    (examined.get(place), survey.shapes.get_index(place))
                {
                    let (_, reason) = Coverage::of(examined);
                    unread += usize::from(session.lacks_pull_secrets(reason, &shape.pod));
                }
            }
            let notes = unread_pull_secrets(unread, "the Pods");
            session.notes.extend(notes);
            // The facts about the Pods take most of the memory, and the sums need only the decisions on them.
            drop(mem::take(&mut survey.shapes));
            Ok((session, survey, examined))
        })?;
        let report = self.report(session, &survey, &examined);
        let text = match self.output {
            Output::Table => report.text(self.by, columns()),
            Output::Json => document(&format!("{:#}", report.json())),
            Output::Html => report.html(),
        };
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    fn report<'p>(
        &self,
        session: Session,
        survey: &'p Survey,
        examined: &'p [Examined],
    ) -> Report<'p> {
        let pods = survey.pods.iter().map(|pod| {
            let platform = pod.node.as_deref().and_then(|node| survey.platform(node));
            let examined = pod.shape.and_then(|shape| examined.get(shape));
            (pod, platform, examined.unwrap_or(&UNREADABLE))
        });
        let summary = Summary::of(pods);
        let mut notes = [&*survey.notes, &session.notes].concat();
        let is_excluded = |namespace: &str| EXCLUDED.contains(&namespace);
        let missed = summary.missed.iter();
        let excluded = missed.filter(|(pod, _)| is_excluded(&pod.workload.namespace));
        let excluded = excluded.count() as u64;
        if excluded > 0 {
            notes.push(format!(
                "{} of those that miss a pool: in {}, where the shipped manifests do not call the webhook",
                count(excluded, "Pod"),
                EXCLUDED.join(" and ")
            ));
        }
        let rate_limits = session.snapshot.resolver.allowances().left();
        for (host, left) in &rate_limits {
            let left = count((*left).into(), "more request");
            notes.push(format!("{host} lets {left} pass"));
        }
        let of = match self.access.namespace.as_deref() {
            Some(namespace) => format!("Namespace {namespace}"),
            None => "All namespaces".to_owned(),
        };
        let now = humantime::format_rfc3339_seconds(SystemTime::now());
        let of = format!("{of}, {}, {now}.", count(survey.pods.len() as u64, "Pod"));
        Report {
            causes: causes(&summary, examined, &session),
            summary,
            of,
            rate_limits,
            notes,
        }
    }
}

/// Returns the messages on failed lookups, by the image.
fn causes<'p>(
    summary: &Summary<'p>,
    examined: &'p [Examined],
    session: &Session,
) -> BTreeMap<&'p str, String> {
    let mut unused_secrets: BTreeMap<&str, &[String]> = BTreeMap::new();
    for state in examined.iter().flat_map(|examined| &examined.images) {
        if !state.unused_secrets.is_empty() {
            unused_secrets.insert(&state.image, &state.unused_secrets);
        }
    }
    let mut causes = BTreeMap::new();
    for ((image, cause), _) in &summary.images {
        if let Cause::Unknown(_) = cause
            && let Ok(parsed) = image.parse()
        {
            let unused = unused_secrets.get(image).copied().unwrap_or_default();
            let message = session.cause(&parsed, unused);
            causes.extend(message.map(|message| (*image, message)));
        }
    }
    causes
}
