//! `tolerarch report`: how much of a cluster could run on every platform, and what keeps the rest from it. Reads with the
//! rights of the person who runs it; each image is looked up once, whatever the number of Pods.

mod figures;
mod html;
mod json;
mod markdown;
mod sections;
mod text;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::{Args, ValueEnum};

use super::advice::EXCLUDED;
use super::inventory::Shown;
use super::judge::{Judged, judge};
use super::output::{Look, Progress, document, print};
use super::session::{Read, Session, ask_about, cause, end_by_interrupt};
use super::survey::Survey;
use super::{Shared, fail};
use figures::count;
use sections::Section;
use tolerarch_core::policy::Cause;
use tolerarch_engine::census::{Census, Judgement, Member, Node, Summary};

#[derive(Debug, Args)]
pub(super) struct Command {
    #[command(flatten)]
    access: super::kubernetes::Access,
    /// What is ranked by what is kept from the pools; the page and -o json have all three
    #[arg(long, value_enum, default_value_t)]
    by: By,
    /// How the result is written: aligned columns, one JSON document, Markdown, or a page of HTML that loads nothing
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
    Markdown,
    Html,
}

/// What is written.
struct Report {
    summary: Summary,
    by: By,
    /// Of what, and when.
    of: Option<String>,
    /// Why single images are not known.
    causes: BTreeMap<String, String>,
    /// How many requests registries let pass before they throttle.
    rate_limits: BTreeMap<String, i64>,
    notes: Vec<String>,
    /// Whether every image was waited for.
    is_complete: bool,
}

impl Command {
    pub(super) fn run(self, shared: &Shared) -> ExitCode {
        let namespace = self.access.namespace.as_deref();
        let read = async |progress: &Progress, discover| {
            progress.show("asking the API server");
            let client = self.access.connect(&shared.environment).await.map_err(|error| fail(&error))?;
            let survey = Survey::read(&client, namespace, progress).await;
            let shown = Shown::configured(&client, discover).await;
            progress.show("");
            let survey = survey.map_err(|error| fail(&error))?;
            let shown = shown.map_err(|error| fail(&error))?;
            // The names in a cluster elsewhere say nothing of this machine.
            let images = if client.is_local() { survey.images() } else { Vec::new() };
            Ok(Read { images, shown, rest: survey })
        };
        let report = ask_about(shared, read, async |session, survey| self.report(session, survey).await);
        let report = match report {
            Ok(report) => report,
            Err(status) => return status,
        };
        let written = match self.output {
            Output::Table => print(&report.text(Look::of_stdout(&shared.environment))),
            Output::Json => print(&document(&format!("{:#}", report.json()))),
            Output::Markdown => print(&report.markdown()),
            Output::Html => print(&report.html()),
        };
        match written {
            Err(error) => fail(&error),
            Ok(()) if !report.is_complete => {
                end_by_interrupt();
                ExitCode::FAILURE
            }
            Ok(()) => ExitCode::SUCCESS,
        }
    }

    async fn report(&self, session: Session, survey: Survey) -> Report {
        let Judged { judgements, is_complete } = judge(&session, &survey).await;
        let unreadable = Judgement::unreadable();
        let mut census = Census::default();
        for pod in &survey.pods {
            let node = pod.node.as_deref().map(|name| {
                let platform = survey.nodes.as_ref().and_then(|nodes| *nodes.get(name)?);
                Node { name, platform }
            });
            let judgement = pod.shape.and_then(|shape| judgements.get(shape)).unwrap_or(&unreadable);
            let (name, workload, requests) = (&*pod.name, &pod.workload, pod.requests);
            census.add(Member { name, workload, requests, node, judgement });
        }
        let pods = survey.pods.len();
        let mut notes = survey.notes;
        notes.extend(session.notes);
        let summary = census.summary();
        let mut causes = BTreeMap::new();
        for image in summary.images.iter().filter(|image| matches!(image.cause, Cause::Unknown(_))) {
            let cause = image.image.parse().ok().and_then(|image| cause(&session.traces.of(&image)));
            causes.extend(cause.map(|cause| (image.image.as_ref().to_owned(), cause)));
        }
        if !is_complete {
            notes
                .insert(0, "interrupted: images that were not looked up by then count as unknown".to_owned());
        }
        let excluded = summary.missed.iter().filter(|(pod, _)| EXCLUDED.contains(&&*pod.workload.namespace));
        let excluded = excluded.count() as u64;
        if excluded > 0 {
            notes.push(format!(
                "{} of those that miss a pool: in {}, where the shipped manifests do not call the webhook",
                count(excluded, "Pod"),
                EXCLUDED.join(" and ")
            ));
        }
        let rate_limits = session.traces.requests_left();
        let left = rate_limits
            .iter()
            .map(|(host, left)| format!("{host} lets {} pass", count(unsigned(*left), "more request")));
        notes.extend(left);
        let of = match self.access.namespace.as_deref() {
            Some(namespace) => format!("Namespace {namespace}"),
            None => "All namespaces".to_owned(),
        };
        let now = humantime::format_rfc3339_seconds(SystemTime::now());
        let of = Some(format!("{of}, {}, {now}.", count(pods as u64, "Pod")));
        Report { summary, by: self.by, of, causes, rate_limits, notes, is_complete }
    }
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

impl Report {
    #[cfg(test)]
    fn of(summary: Summary) -> Self {
        Self {
            summary,
            by: By::default(),
            of: None,
            causes: BTreeMap::new(),
            rate_limits: BTreeMap::new(),
            notes: Vec::new(),
            is_complete: true,
        }
    }

    /// What people read, in this order; only what there is.
    fn sections(&self) -> Vec<Section> {
        let mut sections = vec![self.totals(), self.kept(self.by)];
        sections.extend([self.unknown(), self.causes(), self.missed(), self.misplaced()]);
        sections.retain(|section| !section.rows.is_empty());
        sections
    }
}
