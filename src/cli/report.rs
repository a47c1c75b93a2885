//! `tolerarch report`: how much of a cluster could run on every platform, and which images prevent the rest. Reads with the
//! user's own rights. Each image is looked up once, for any number of Pods.

mod bars;
mod bill;
mod changes;
mod comparison;
mod contents;
mod costs;
mod html;
mod json;
mod markdown;
mod newer;
mod prices;
mod progress;
mod section;
mod sections;
mod steps;
mod text;

use std::collections::BTreeMap;
use std::mem;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::SystemTime;

use clap::{Args, ValueEnum};

use super::advice::{EXCLUDED, unread_pull_secrets};
use super::output::{Progress, columns, count, document, print};
use super::session::{Session, run};
use super::survey::Survey;
use super::{Failure, Shared};
use bill::Bill;
use comparison::EarlierReport;
use contents::{Ranking, Report};
use newer::Newer;
use prices::PriceList;
use tolerarch_core::image::PlatformSet;
use tolerarch_core::policy::Cause;
use tolerarch_core::reason::Reason;
use tolerarch_engine::census::{Basis, Coverage, PlacedPod, Summary};
use tolerarch_engine::decide::Examined;

#[derive(Debug, Args)]
pub(super) struct Command {
    #[command(flatten)]
    access: super::kubernetes::Access,
    /// The ranking of what is kept from the pools. -o html, markdown and json have all three
    #[arg(long, value_enum, default_value_t)]
    by: Ranking,
    /// The format of the result: aligned columns, one JSON document, a page of HTML that loads nothing, or
    /// Markdown for pull requests and wikis
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// A file with the prices of a vCPU-hour and a GiB-hour by architecture. Adds what the Pods cost and would cost a month
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// An earlier report, as written by -o json. Adds what has changed since
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// List the tags of the images that keep most, and look up which newer tags have the missing platforms
    #[arg(long)]
    newer: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    #[default]
    Table,
    Json,
    Html,
    Markdown,
}

/// Result of all reads and lookups.
struct Surveyed {
    session: Session,
    survey: Survey,
    /// Decisions on the shapes, in their order.
    examined: Vec<Examined>,
    /// Platforms that the node selectors and affinities of the shapes allow, in the same order.
    selected: Vec<PlatformSet>,
    is_installed: bool,
    /// When tolerarch was installed, in seconds since 1970.
    installed: Option<i64>,
    /// Newer tags of images, with `--newer`.
    newer: Option<Vec<Newer>>,
}

/// Decision on a Pod that exceeds the limits on untrusted input.
static UNREADABLE: LazyLock<Examined> = LazyLock::new(|| Examined::skipped(Reason::Malformed));

impl Command {
    pub(super) fn run(self, shared: &Shared) -> Result<ExitCode, Failure> {
        let prices = match &self.prices {
            Some(path) => Some(PriceList::load(path)?),
            None => None,
        };
        let earlier = match &self.compare {
            Some(path) => Some(EarlierReport::load(path)?),
            None => None,
        };
        let surveyed = run(shared, async |progress| self.survey(shared, progress).await)?;
        let mut report = self.report(&surveyed, prices);
        if let Some(earlier) = &earlier {
            let comparison = earlier.compare(&report.json());
            report.notes.extend_from_slice(&comparison.notes);
            report.comparison = Some(comparison);
        }
        let text = match self.output {
            Output::Table => report.text(self.by, columns()),
            Output::Json => document(&format!("{:#}", report.json())),
            Output::Html => report.html(),
            Output::Markdown => report.markdown(),
        };
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    async fn survey(&self, shared: &Shared, progress: Progress) -> Result<Surveyed, Failure> {
        let namespace = self.access.namespace.as_deref();
        progress.show("querying the API server");
        let client = self.access.connect(&shared.environment)?;
        let mut configured = self.access.configured(shared, &client).await?;
        let scope = configured.reviewed.take();
        let installed = configured.installed;
        let survey = Survey::read(&client, namespace, scope.as_ref(), &progress).await?;
        let images = survey.images();
        let mut session =
            Session::start(shared, configured, progress, Some(&client), images).await?;
        let examined = survey.examine(&session).await;
        let lacking = pods_lacking_pull_secrets(&session, &survey, &examined);
        session
            .notes
            .extend(unread_pull_secrets(lacking, "the Pods"));
        let shapes = survey.shapes.iter();
        let selected = shapes.map(|shape| shape.pod.selected_platforms()).collect();
        let mut surveyed = Surveyed {
            session,
            survey,
            examined,
            selected,
            is_installed: scope.is_some(),
            installed,
            newer: None,
        };
        if self.newer {
            surveyed.newer = Some(surveyed.newer_tags().await);
        }
        // The facts about the Pods take most of the memory, and the sums need only the decisions.
        drop(mem::take(&mut surveyed.survey.shapes));
        Ok(surveyed)
    }

    fn report<'p>(&self, surveyed: &'p Surveyed, prices: Option<PriceList>) -> Report<'p> {
        let Surveyed {
            session,
            survey,
            examined,
            installed,
            ..
        } = surveyed;
        let list = prices.unwrap_or_default();
        let basis = Basis {
            prices: list.prices,
            installed: *installed,
        };
        let summary = Summary::of(&basis, surveyed.placed_pods());
        let rate_limits = session.snapshot.resolver.allowances().left();
        let mut notes = [&*survey.notes, &session.notes].concat();
        notes.extend(excluded(&summary));
        if self.prices.is_some() {
            notes.extend(uncounted(&summary));
        }
        notes.extend(rate_limits.iter().map(rate_limit_note));
        let namespace = self.access.namespace.clone();
        let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let scope = scope(namespace.as_deref(), survey.pods.len(), &time);
        let bill = self.prices.is_some().then(|| Bill {
            currency: list.currency,
            costs: summary.costs,
            nodes: match namespace {
                Some(_) => None,
                None => survey.cost_of_nodes(&basis.prices),
            },
            prices: basis.prices,
        });
        Report {
            causes: causes(&summary, examined, session),
            summary,
            is_installed: surveyed.is_installed,
            cluster_flags: self.access.flags(),
            scope,
            time,
            namespace,
            installed: *installed,
            bill,
            comparison: None,
            rate_limits,
            newer: surveyed.newer.as_deref(),
            notes,
        }
    }
}

impl Surveyed {
    async fn newer_tags(&self) -> Vec<Newer> {
        let summary = Summary::of(&Basis::default(), self.placed_pods());
        newer::find(&self.session, &self.survey, &self.examined, &summary).await
    }

    fn placed_pods(&self) -> impl Iterator<Item = PlacedPod<'_>> {
        self.survey.pods.iter().map(|pod| {
            let node = pod.node.as_deref();
            let examined = pod.shape.and_then(|shape| self.examined.get(shape));
            let selected = pod.shape.and_then(|shape| self.selected.get(shape));
            PlacedPod {
                pod,
                node: node.and_then(|node| self.survey.platform(node)),
                examined: examined.unwrap_or(&UNREADABLE),
                selected: selected.copied().unwrap_or(PlatformSet::ALL),
            }
        })
    }
}

/// Returns the number of Pods whose lookups failed, and that name pull secrets which are not read.
fn pods_lacking_pull_secrets(session: &Session, survey: &Survey, examined: &[Examined]) -> usize {
    let mut lacking = 0;
    for pod in &survey.pods {
        let Some(index) = pod.shape else { continue };
        let (Some(examined), Some(shape)) = (examined.get(index), survey.shapes.get_index(index))
        else {
            continue;
        };
        let (_, reason) = Coverage::of(examined);
        if session.lacks_pull_secrets(reason, &shape.pod) {
            lacking += 1;
        }
    }
    lacking
}

/// Describes the scope and the time of a report: `Namespace shop, 3 Pods, 2026-11-01T00:00:00Z.`
fn scope(namespace: Option<&str>, pods: usize, time: &str) -> String {
    let namespaces = match namespace {
        Some(namespace) => format!("Namespace {namespace}"),
        None => "All namespaces".to_owned(),
    };
    format!("{namespaces}, {}, {time}.", count(pods as u64, "Pod"))
}

fn rate_limit_note((host, left): (&String, &u32)) -> String {
    format!(
        "{host} allows {} before it limits the rate",
        count((*left).into(), "more request")
    )
}

/// Returns a note on eligible Pods in namespaces where the webhook is not called.
fn excluded(summary: &Summary<'_>) -> Option<String> {
    let mut excluded = 0;
    for (pod, _) in &summary.missed {
        excluded += u64::from(EXCLUDED.contains(&&*pod.workload.namespace));
    }
    if excluded == 0 {
        return None;
    }
    Some(format!(
        "{} of those that miss a pool: in {}, for which the shipped manifests do not call the webhook",
        count(excluded, "Pod"),
        EXCLUDED.join(" and ")
    ))
}

/// Returns a note on Pods that are not in the costs.
fn uncounted(summary: &Summary<'_>) -> Option<String> {
    let uncounted = summary.costs.uncounted;
    if uncounted == 0 {
        return None;
    }
    Some(format!(
        "{} not counted in costs: no node, or one without a known price",
        count(uncounted, "Pod")
    ))
}

/// Returns the messages on failed lookups by image.
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
