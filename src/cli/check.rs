//! `tolerarch check`: what the webhook would do with what stands in files. What decides is the same.

pub mod documents;
mod json;
mod kinds;
mod report;
pub mod workload;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use futures_util::stream::{self, StreamExt};

use super::output::{Look, print, tell};
use super::session::{Decided, FailOn, Session, ask};
use super::survey::SurveyedPod;
use super::{Shared, fail};
use documents::Document;
use kinds::CustomKind;
pub(super) use kinds::group_of_kind;
use report::{InputError, Report, Verdict};
use tolerarch_core::image::ImageRef;
use tolerarch_core::pod::{Pod, PodError};
use tolerarch_core::reason::Reason;
use tolerarch_core::review::{self, DaemonSet, Subject};
use workload::{Content, Given, Object};

/// The status when something could be decided that `--fail-on` names.
const FAILED_ON: u8 = 3;
/// Objects that are decided at a time; how many lookups run is for the webhook's limits to say.
const AT_A_TIME: usize = 256;

#[derive(Debug, Args)]
pub(super) struct Check {
    /// A file of YAML or JSON documents, a directory of such files, or - for standard input; may be repeated
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    file: Vec<PathBuf>,
    /// How the result is written: aligned columns, one JSON document, or the JSON patches alone, one a line
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Read directories with all that are below them
    #[arg(short = 'R', long)]
    recursive: bool,
    /// A kind that creates Pods, and where their template stands in it; may be repeated, also for one kind with several
    /// templates, and beats what is built in. [] stands for each item of a list, * for each member
    #[arg(long, value_name = "KIND.GROUP=.PATH")]
    workload: Vec<CustomKind>,
    /// Decide as for the namespaces with the label tolerarch.io/profile=NAME
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Exit with status 3 if an image lacks a platform of every pool (unsupported), if the platforms of an image could
    /// not be determined (unknown), or if a kind is not known that holds something like a Pod template (not-looked-at); a
    /// toleration that is taken back counts as unsupported and unknown
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',')]
    fail_on: Vec<FailOn>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    #[default]
    Table,
    Json,
    Patch,
}

impl Check {
    pub(super) fn run(self, shared: &Shared) -> ExitCode {
        let (mut report, objects) = self.read();
        let images: Vec<ImageRef> = objects.iter().flat_map(|asked| asked.object.images()).collect();
        let asked = ask(shared, self.profile.as_deref(), &images, async |session| {
            let patches = self.output != Output::Table;
            decide(session, objects, patches).await.into_iter().for_each(|decided| report.add(decided));
            report
        });
        let mut report = match asked {
            Ok(report) => report,
            Err(status) => return status,
        };
        report.faults.sort_by_key(|fault| (fault.source, fault.line));
        for fault in &report.faults {
            tell(&format!("tolerarch: {}", report.told(fault)));
        }
        let written = match self.output {
            Output::Table => print(&report.table(Look::of_stdout(&shared.environment))),
            Output::Json => report.json().map_err(io::Error::from).and_then(|text| print(&text)),
            Output::Patch => report.patches(),
        };
        if let Err(error) = written {
            return fail(&error);
        }
        report.hints().iter().for_each(|hint| tell(&format!("tolerarch: {hint}")));
        if !report.faults.is_empty() {
            return ExitCode::FAILURE;
        }
        let stumbles = |verdict: &Verdict| {
            FailOn::of(verdict.decided.reason).iter().any(|kind| self.fail_on.contains(kind))
        };
        let unseen = !report.foreign.is_empty() && self.fail_on.contains(&FailOn::NotLookedAt);
        if unseen || report.verdicts.iter().any(stumbles) {
            ExitCode::from(FAILED_ON)
        } else {
            ExitCode::SUCCESS
        }
    }

    /// Reads all files. What cannot be read is a fault of the report; what is to be decided comes along.
    fn read(&self) -> (Report, Vec<PendingObject>) {
        let (mut report, mut asked) = (Report::default(), Vec::new());
        for given in &self.file {
            match files(given, self.recursive) {
                Ok(files) => {
                    for file in files {
                        read_file(&file, &self.workload, &mut report, &mut asked);
                    }
                }
                Err(error) => {
                    let source = report.source(given);
                    report.faults.push(InputError::of_file(source, format!("cannot be read: {error}")));
                }
            }
        }
        // Who has nothing checked may think that all was well.
        if report.documents == 0 && report.faults.is_empty() {
            for given in &self.file {
                let source = report.source(given);
                report
                    .faults
                    .push(InputError::of_file(source, "no objects: there is no document in it".to_owned()));
            }
        }
        (report, asked)
    }
}

/// An object that is to be decided, and where it stands.
pub(super) struct PendingObject {
    source: usize,
    document: usize,
    object: Object,
}

/// A Pod that an object of a cluster is, or would create.
pub(super) struct Template {
    pub(super) kind: String,
    pub(super) name: String,
    /// Where it stands in the object; empty for a Pod.
    pub(super) path: String,
    /// How people name it.
    pub(super) label: String,
    given: Given,
}

/// All Pods of an object as the API server shows it.
///
/// # Errors
/// It holds none, as far as is known.
pub(super) fn templates(object: &[u8]) -> Result<Vec<Template>, String> {
    let mut templates = Vec::new();
    for Document { content, .. } in documents::read(object) {
        for content in workload::contents(&content?, &[]) {
            match content {
                Content::Object(object) => {
                    let label = object.label();
                    let Object { kind, name, path, given, .. } = object;
                    templates.push(Template { kind, name, path, label, given });
                }
                Content::Invalid { message, .. } => return Err(message),
                Content::Skipped(kind) | Content::Foreign(kind) | Content::Templateless(kind) => {
                    return Err(format!("no Pod template is known in {kind}"));
                }
            }
        }
    }
    Ok(templates)
}

impl Template {
    /// The Pod as it would be created.
    ///
    /// # Errors
    /// It is none that the API server would take.
    pub(super) fn pod(&self) -> Result<Pod<'_>, PodError> {
        match &self.given {
            Given::Template { value, owner } => Pod::of_template(value, owner, &self.name),
            Given::Pod(value) | Given::Review(value) => Pod::of_value(value),
        }
    }

    /// Whether it has this name, or is named so as a controller or as the owner above.
    pub(super) fn owns(&self, pod: &SurveyedPod) -> bool {
        let is_it = |kind: &str, name: &str| self.kind == kind && self.name == name;
        let controls = |(kind, name): (&str, &str)| is_it(kind, name);
        is_it(&pod.workload.kind, &pod.workload.name)
            || pod.controller().is_some_and(controls)
            || is_it("Pod", &pod.name)
    }
}

/// The file itself, or those of a directory that hold manifests, as `kubectl -f` takes them; like that, no link is followed
/// to a directory below.
fn files(given: &Path, recursive: bool) -> io::Result<Vec<PathBuf>> {
    if is_stdin(given) || !fs::metadata(given)?.is_dir() {
        return Ok(vec![given.to_owned()]);
    }
    let is_manifest = |path: &Path| {
        let extension = path.extension().and_then(OsStr::to_str);
        matches!(extension, Some("yaml" | "yml" | "json")) && !path.is_dir()
    };
    let (mut files, mut directories) = (Vec::new(), vec![given.to_owned()]);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let path = entry.path();
            if is_manifest(&path) {
                files.push(path);
            } else if recursive && entry.file_type()?.is_dir() {
                directories.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn read_file(file: &Path, custom: &[CustomKind], report: &mut Report, asked: &mut Vec<PendingObject>) {
    let source = report.source(file);
    let mut bytes = Vec::new();
    let read = if is_stdin(file) {
        io::stdin().lock().take(documents::FILE + 1).read_to_end(&mut bytes)
    } else {
        File::open(file).and_then(|opened| opened.take(documents::FILE + 1).read_to_end(&mut bytes))
    };
    match read {
        Err(error) => {
            return report.faults.push(InputError::of_file(source, format!("cannot be read: {error}")));
        }
        Ok(length) if length as u64 > documents::FILE => {
            let limit = documents::FILE >> 20;
            return report
                .faults
                .push(InputError::of_file(source, format!("larger than the {limit} MiB that are read")));
        }
        Ok(_) => {}
    }
    for Document { number, line, content } in documents::read(&bytes) {
        report.documents += 1;
        let contents = match content {
            Ok(node) => workload::contents(&node, custom),
            Err(message) => vec![Content::Invalid { line, message }],
        };
        for content in contents {
            match content {
                Content::Object(object) => asked.push(PendingObject { source, document: number, object }),
                Content::Skipped(kind) => *report.skipped.entry(kind).or_default() += 1,
                Content::Foreign(kind) => *report.foreign.entry(kind).or_default() += 1,
                Content::Templateless(kind) => *report.templateless.entry(kind).or_default() += 1,
                Content::Invalid { line, message } => {
                    report.faults.push(InputError { source, document: number, line, message });
                }
            }
        }
    }
}

/// Decides on all of them, some at a time, in the order in which they stand.
async fn decide(
    session: Session,
    asked: Vec<PendingObject>,
    patches: bool,
) -> Vec<Result<Verdict, InputError>> {
    let all = asked.len();
    let mut done = 0;
    let mut verdicts = stream::iter(asked).map(|asked| asked.verdict(&session, patches)).buffered(AT_A_TIME);
    let mut collected = Vec::with_capacity(all);
    session.progress.show(&format!("checked 0 of {all}"));
    while let Some(verdict) = verdicts.next().await {
        collected.push(verdict);
        done += 1;
        session.progress.show(&format!("checked {done} of {all}"));
    }
    session.progress.show("");
    collected
}

impl PendingObject {
    /// The decision; a fault where the API server would refuse the Pod.
    async fn verdict(self, session: &Session, patches: bool) -> Result<Verdict, InputError> {
        let Self { source, document, object } = self;
        let root = patches.then_some(&*object.template);
        match decided(&object, session, root).await {
            Ok(decided) => Ok(Verdict { source, document, object, decided }),
            Err(message) => Err(InputError { source, document, line: object.line, message }),
        }
    }
}

async fn decided(object: &Object, session: &Session, root: Option<&str>) -> Result<Decided, String> {
    let Object { kind, namespace, name, .. } = object;
    let malformed = |why: &str| format!("the Pod of {kind} {name:?} is malformed: {why}");
    let no_object = || malformed("request.object is missing");
    let pod = match &object.given {
        Given::Pod(value) => Pod::of_value(value).map(Box::new),
        Given::Template { value, owner } => Pod::of_template(value, owner, name).map(Box::new),
        Given::Review(value) => match review::of_value(value).map_err(|error| error.to_string())?.subject {
            Subject::Pod(pod) => Ok(pod),
            Subject::DaemonSet(set) => {
                let root = root.map(|_| DaemonSet::TEMPLATE);
                return Ok(session.decide_daemon_set(namespace, &set, root).await);
            }
            Subject::Malformed => {
                let object = value.pointer("/request/object").filter(|object| !object.is_null());
                Pod::of_value(object.ok_or_else(no_object)?).map(Box::new)
            }
            Subject::Other => return Ok(Decided::unchanged(Reason::NotApplicable)),
        },
    };
    let pod = pod.map_err(|error| malformed(&error.to_string()))?;
    let decided = session.decide(namespace, &pod, root).await;
    if decided.reason == Reason::Malformed { Err(malformed("it has no containers")) } else { Ok(decided) }
}
