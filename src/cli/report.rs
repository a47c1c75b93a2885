//! `tolerarch report`: the share of a cluster that could run on every platform, and what keeps the rest from it. Reads
//! with the user's own rights; each image is looked up once, for any number of Pods.

mod html;
mod json;
mod sections;
mod text;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::mem;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::SystemTime;

use clap::{Args, ValueEnum};
use futures_util::stream::{self, StreamExt};

use super::advice::{EXCLUDED, unread_pull_secrets};
use super::output::{columns, count, document, print};
use super::session::{Session, run};
use super::survey::Survey;
use super::{Failure, Shared};
use tolerarch_core::image::ImageRef;
use tolerarch_core::policy::Cause;
use tolerarch_core::reason::Reason;
use tolerarch_engine::census::{Coverage, Shape, Summary};
use tolerarch_engine::decide::Examined;

/// Maximal number of shapes decided at a time: far more than lookups at a time, so that shapes that wait for a slow
/// registry do not delay the others. Each takes a few kilobytes.
const AT_A_TIME: usize = 2048;

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
            let examined = examine(&session, &survey).await;
            let lacks_pull_secrets = |shape: &usize| {
                let known = examined.get(*shape).zip(survey.shapes.get_index(*shape));
                known.is_some_and(|(known, shape)| {
                    session.lacks_pull_secrets(Coverage::of(known).1, &shape.pod)
                })
            };
            let unread = survey
                .pods
                .iter()
                .filter_map(|pod| pod.shape)
                .filter(lacks_pull_secrets)
                .count();
            session
                .notes
                .extend(unread_pull_secrets(unread, "the Pods"));
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
        let summary = Summary::of(survey.pods.iter().map(|pod| {
            let platform = pod.node.as_deref().and_then(|node| survey.platform(node));
            (
                pod,
                platform,
                pod.shape
                    .and_then(|shape| examined.get(shape))
                    .unwrap_or(&UNREADABLE),
            )
        }));
        let mut notes = [&*survey.notes, &session.notes].concat();
        let unknown = summary
            .images
            .iter()
            .filter(|((_, cause), _)| matches!(cause, Cause::Unknown(_)));
        let mut unused_secrets: BTreeMap<&str, &[String]> = BTreeMap::new();
        for state in examined
            .iter()
            .flat_map(|one| &one.images)
            .filter(|one| !one.unused_secrets.is_empty())
        {
            unused_secrets.insert(&state.image, &state.unused_secrets);
        }
        let mut causes = BTreeMap::new();
        for ((image, _), _) in unknown {
            let unused = unused_secrets.get(image).copied().unwrap_or_default();
            let parsed: Option<ImageRef> = image.parse().ok();
            if let Some(cause) = parsed.and_then(|parsed| session.cause(&parsed, unused)) {
                causes.insert(*image, cause);
            }
        }
        let excluded = summary
            .missed
            .iter()
            .filter(|(pod, _)| EXCLUDED.contains(&&*pod.workload.namespace));
        let excluded = excluded.count() as u64;
        if excluded > 0 {
            notes.push(format!(
                "{} of those that miss a pool: in {}, where the shipped manifests do not call the webhook",
                count(excluded, "Pod"),
                EXCLUDED.join(" and ")
            ));
        }
        let rate_limits = session.snapshot.resolver.allowances().left();
        let left = rate_limits.iter().map(|(host, left)| {
            let left = count((*left).into(), "more request");
            format!("{host} lets {left} pass")
        });
        notes.extend(left);
        let of = match self.access.namespace.as_deref() {
            Some(namespace) => format!("Namespace {namespace}"),
            None => "All namespaces".to_owned(),
        };
        let now = humantime::format_rfc3339_seconds(SystemTime::now());
        let of = format!("{of}, {}, {now}.", count(survey.pods.len() as u64, "Pod"));
        Report {
            summary,
            of,
            causes,
            rate_limits,
            notes,
        }
    }
}

/// Decides once for each shape, as the webhook would and within its limits on lookups.
async fn examine(session: &Session, survey: &Survey) -> Vec<Examined> {
    let (
        Session {
            snapshot,
            limits,
            progress,
            ..
        },
        all,
    ) = (session, survey.shapes.len());
    let show = |done: usize| {
        progress.show(&format!(
            "looked up the images of {done} of {all} kinds of Pods"
        ));
    };
    let done = Cell::new(0);
    let one = async |shape: &Shape| {
        let examined = shape
            .examine(snapshot, limits, survey.terms(&shape.namespace))
            .await;
        done.set(done.get() + 1);
        show(done.get());
        examined
    };
    show(0);
    stream::iter(&survey.shapes)
        .map(one)
        .buffered(AT_A_TIME)
        .collect()
        .await
}
