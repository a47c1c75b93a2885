//! `tolerarch report`: how much of a cluster could run on every platform, and what keeps the rest from it. Reads with the
//! rights of the person who runs it; each image is looked up once, whatever the number of Pods.

mod figures;
mod html;
mod json;
mod markdown;
mod sections;
mod text;

use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::{Args, ValueEnum};
use futures_util::stream::{self, StreamExt};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::AbortHandle;

use super::advice::{EXCLUDED, unread_pull_secrets};
use super::output::{Look, count, json, print};
use super::session::{Session, end_by_interrupt, run};
use super::survey::{Survey, SurveyedPod};
use super::{Failure, Shared};
use sections::Section;
use tolerarch_core::image::LookupError;
use tolerarch_core::policy::Cause;
use tolerarch_core::reason::Reason;
use tolerarch_engine::census::{Census, Judgement, Member, Shape, Summary};

/// Shapes that are decided on at a time. They wait for images, of which far fewer are looked up at a time; so many that those
/// whose registry is slow do not hold up the others. Each takes a few kilobytes.
const AT_A_TIME: usize = 2048;

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

#[derive(Default)]
struct Report {
    summary: Summary,
    by: By,
    /// Of what, and when.
    of: Option<String>,
    causes: BTreeMap<String, String>,
    /// How many requests registries let pass before they throttle.
    rate_limits: BTreeMap<String, i64>,
    notes: Vec<String>,
    is_complete: bool,
}

impl Command {
    pub(super) fn run(self, shared: &Shared) -> Result<ExitCode, Failure> {
        let namespace = self.access.namespace.as_deref();
        let report = run(shared, async |progress, guard| {
            progress.show("asking the API server");
            let client = self.access.connect(&shared.environment)?;
            let configured = self.access.configured(shared, &client).await?;
            let survey = Survey::read(&client, namespace, &progress).await?;
            let session =
                Session::in_cluster(shared, configured, progress, &client, &survey.images()).await?;
            let judged = judge(&session, &survey, &guard).await?;
            Ok(self.report(session, survey, judged))
        })?;
        let text = match self.output {
            Output::Table => report.text(Look::of_stdout(&shared.environment)),
            Output::Json => json(&report.json())?,
            Output::Markdown => report.markdown(),
            Output::Html => report.html(),
        };
        print(&text)?;
        if !report.is_complete {
            end_by_interrupt();
            return Ok(ExitCode::FAILURE);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn report(
        &self,
        mut session: Session,
        survey: Survey,
        (judgements, is_complete): (Vec<Judgement>, bool),
    ) -> Report {
        let unreadable = Judgement::skipped(Reason::Malformed, &[]);
        let mut census = Census::default();
        for SurveyedPod { pod, workload } in &survey.pods {
            let node = pod.node.as_deref().and_then(|name| Some((name, survey.platform(name)?)));
            let judgement = pod.shape.and_then(|shape| judgements.get(shape)).unwrap_or(&unreadable);
            census.add(Member { name: &pod.name, workload, requests: pod.requests, node, judgement });
        }
        let lacks_pull_secrets = |shape: &usize| {
            let known = judgements.get(*shape).zip(survey.shapes.get(*shape));
            known.is_some_and(|(known, shape)| session.lacks_pull_secrets(known.reason, &shape.pod))
        };
        let unread = survey.pods.iter().filter_map(|one| one.pod.shape).filter(lacks_pull_secrets).count();
        let pods = survey.pods.len();
        let mut notes = survey.notes;
        notes.append(&mut session.notes);
        notes.extend(unread_pull_secrets(unread, "the Pods"));
        let summary = census.summary();
        let mut causes = BTreeMap::new();
        for image in summary.images.iter().filter(|image| matches!(image.cause, Cause::Unknown(_))) {
            let cause = image.image.parse().ok().and_then(|image| session.cause(&image));
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
        let left = rate_limits.iter().map(|(host, left)| {
            let left = count(u64::try_from(*left).unwrap_or_default(), "more request");
            format!("{host} lets {left} pass")
        });
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

/// Decides once for each shape, as the webhook would and within its limits on lookups, until all are known or the user
/// interrupts: what is not known by then counts as not waited for. An interrupt before and after ends the process. Returns
/// a judgement for each shape, and whether all were waited for.
async fn judge(
    session: &Session,
    survey: &Survey,
    guard: &AbortHandle,
) -> io::Result<(Vec<Judgement>, bool)> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    guard.abort();
    let all = survey.shapes.len();
    let mut judgements: Vec<Option<Judgement>> = vec![None; all];
    let (mut done, mut is_complete) = (0, true);
    let Session { snapshot, limits, progress, .. } = session;
    let one = async |(place, shape): (usize, &Shape)| {
        (place, shape.judge(snapshot, limits, survey.terms(&shape.namespace)).await)
    };
    let mut work = stream::iter(survey.shapes.iter().map(|shape| &**shape).enumerate())
        .map(one)
        .buffer_unordered(AT_A_TIME);
    while done < all && is_complete {
        progress.show(&format!("looked up the images of {done} of {all} kinds of Pods"));
        tokio::select! {
            judged = work.next() => {
                let Some((place, judgement)) = judged else { break };
                judgements[place] = Some(judgement);
                done += 1;
            }
            _ = interrupt.recv() => is_complete = false,
        }
    }
    progress.guard();
    let judgements = judgements.into_iter().zip(&survey.shapes);
    let judgements = judgements.map(|(known, shape)| {
        known.unwrap_or_else(|| Judgement::not_known(&shape.pod, LookupError::BudgetExceeded))
    });
    Ok((judgements.collect(), is_complete))
}

impl Report {
    /// What people read, in this order; only what there is.
    fn sections(&self) -> Vec<Section> {
        let mut sections = vec![self.totals(), self.kept(self.by)];
        sections.extend([self.unknown(), self.causes(), self.missed(), self.misplaced()]);
        sections.retain(|section| !section.rows.is_empty());
        sections
    }
}
