//! `tolerarch check`: the webhook's decisions on the objects in files, by the same code.

pub mod documents;
mod kinds;
mod part;
mod report;
pub mod workload;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use futures_util::stream::{self, StreamExt};

use super::output::{columns, document, print, tell};
use super::session::{Decided, FailOn, Session, run_alone};
use super::{Failure, Shared};
use kinds::CustomKind;
use report::{InputError, Report, Verdict};
use tolerarch_core::image::ImageRef;
use tolerarch_core::pod::{Pod, PodError};
use tolerarch_core::reason::Reason;
use tolerarch_core::review::{self, DaemonSet, Subject};
use tolerarch_text::yaml::Fault;
use workload::{Content, Given, UnseenImage};
pub(super) use workload::{Object, Place};

/// Exit status if an outcome occurs that `--fail-on` names.
const FAILED_ON: u8 = 3;
/// Maximal number of objects decided at a time; the webhook's limits bound the lookups.
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
    /// templates, and beats what is found by its shape. [] stands for each item of a list, * for each member
    #[arg(long, value_name = "KIND.GROUP=.PATH")]
    workload: Vec<CustomKind>,
    /// Decide as for the namespaces with the label tolerarch.io/profile=NAME
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Exit with status 3 if an image lacks a platform of every pool (unsupported), if the platforms of an image could
    /// not be determined (unknown), or if an image is named outside the Pod templates that are found (not-looked-at); a
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
    pub(super) fn run(self, shared: &Shared) -> Result<ExitCode, Failure> {
        let mut report = Report::default();
        let asked = self.read(&mut report);
        let images: Vec<ImageRef> = asked.iter().flatten().flat_map(Object::images).collect();
        let patches = self.output != Output::Table;
        run_alone(shared, None, self.profile.as_deref(), &images, async |session| {
            decide(&session, asked, patches, &mut report).await;
        })?;
        for fault in &report.errors {
            tell(&format!("tolerarch: {}", fault.told()));
        }
        match self.output {
            Output::Table => print(&report.table(columns()))?,
            Output::Json => print(&document(&serde_json::to_string_pretty(&report)?))?,
            Output::Patch => report.patches()?,
        }
        report.hints().iter().for_each(|hint| tell(&format!("tolerarch: {hint}")));
        let stumbles = |verdict: &Verdict| {
            FailOn::of(verdict.decided.reason).iter().any(|kind| self.fail_on.contains(kind))
        };
        let unseen = !report.not_looked_at.is_empty() && self.fail_on.contains(&FailOn::NotLookedAt);
        Ok(if !report.errors.is_empty() {
            ExitCode::FAILURE
        } else if unseen || report.results.iter().any(stumbles) {
            FAILED_ON.into()
        } else {
            ExitCode::SUCCESS
        })
    }

    /// Reads all files. Returns objects to decide on and errors, in the order of the files; the rest is only counted.
    fn read(&self, report: &mut Report) -> Vec<Asked> {
        let mut asked = Vec::new();
        let mut documents = 0;
        for given in &self.file {
            let files = files(given, self.recursive).unwrap_or_else(|error| {
                asked.push(Err(InputError::of_file(given, format!("cannot be read: {error}"))));
                Vec::new()
            });
            for file in &files {
                documents += read_file(file, &self.workload, report, &mut asked);
            }
            report.files += files.len().max(1);
        }
        // A check of nothing must not look like a success.
        if documents == 0 && asked.is_empty() {
            let nothing = |given: &PathBuf| {
                Err(InputError::of_file(given, "no objects: there is no document in it".to_owned()))
            };
            asked.extend(self.file.iter().map(nothing));
        }
        asked
    }
}

type Asked = Result<Object, InputError>;

/// Returns the Pods of an object from the API server, one for each template.
pub(super) fn objects_of(object: &[u8]) -> Result<Vec<Object>, String> {
    let (mut objects, mut other) = (Vec::new(), None);
    for document in documents::read(object) {
        for content in workload::contents(&document.map_err(|fault| fault.message)?, &[]) {
            match content {
                Content::Object(object) => objects.push(object),
                Content::Invalid(fault) => return Err(fault.message),
                Content::Skipped(kind) | Content::Foreign(kind, _) | Content::Templateless(kind) => {
                    other = Some(kind);
                }
            }
        }
    }
    match other {
        Some(kind) if objects.is_empty() => Err(format!("no Pod template is found in {kind}")),
        _ => Ok(objects),
    }
}

/// Returns the file itself, or a directory's manifests, as `kubectl -f` does: links to directories are not followed.
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

/// Reads a file; returns the number of documents in it.
fn read_file(file: &Path, custom: &[CustomKind], report: &mut Report, asked: &mut Vec<Asked>) -> usize {
    let mut bytes = Vec::new();
    let read = if is_stdin(file) {
        io::stdin().lock().take(documents::FILE + 1).read_to_end(&mut bytes)
    } else {
        File::open(file).and_then(|opened| opened.take(documents::FILE + 1).read_to_end(&mut bytes))
    };
    let fault = match read {
        Err(error) => Some(format!("cannot be read: {error}")),
        Ok(length) if length as u64 > documents::FILE => {
            Some(format!("larger than the {} MiB that are read", documents::FILE >> 20))
        }
        Ok(_) => None,
    };
    if let Some(fault) = fault {
        asked.push(Err(InputError::of_file(file, fault)));
        return 0;
    }
    let documents = documents::read(&bytes);
    let count = documents.len();
    let name = file.display().to_string();
    for (number, document) in (1..).zip(documents) {
        let contents = match document {
            Ok(node) => workload::contents(&node, custom),
            Err(fault) => vec![Content::Invalid(fault)],
        };
        let place = |place: Place| Place { file: name.clone(), document: number, ..place };
        for content in contents {
            match content {
                Content::Object(mut object) => {
                    object.place = place(object.place);
                    asked.push(Ok(object));
                }
                Content::Invalid(Fault { line, message }) => {
                    asked.push(Err(InputError { file: name.clone(), document: number, line, message }));
                }
                Content::Skipped(kind) => *report.skipped.entry(kind).or_default() += 1,
                Content::Foreign(kind, images) => {
                    *report.not_looked_at.entry(kind).or_default() += 1;
                    let placed = |image: UnseenImage| UnseenImage { place: place(image.place), ..image };
                    report.unseen_images.extend(images.into_iter().map(placed));
                }
                Content::Templateless(kind) => *report.without_template.entry(kind).or_default() += 1,
            }
        }
    }
    count
}

/// Decides on all objects, [`AT_A_TIME`] at a time, and keeps their order.
async fn decide(session: &Session, asked: Vec<Asked>, patches: bool, report: &mut Report) {
    let all = asked.len();
    let one = async |asked: Asked| {
        let object = asked?;
        match decided(&object, session, patches).await {
            Ok(decided) => Ok(Verdict { object, decided }),
            Err(message) => {
                let Place { file, document, line, .. } = object.place;
                Err(InputError { file, document, line, message })
            }
        }
    };
    let mut verdicts = pin!(stream::iter(asked).map(one).buffered(AT_A_TIME));
    loop {
        let done = report.results.len() + report.errors.len();
        session.progress.show(&format!("checked {done} of {all}"));
        match verdicts.next().await {
            Some(Ok(verdict)) => report.results.push(verdict),
            Some(Err(error)) => report.errors.push(error),
            None => return,
        }
    }
}

/// Returns the decision on an object, or why the API server would refuse its Pod.
async fn decided(object: &Object, session: &Session, patches: bool) -> Result<Decided, String> {
    let Object { place: Place { kind, namespace, name, .. }, template, value, .. } = object;
    let malformed = |why: &str| format!("the Pod of {kind} {name:?} is malformed: {why}");
    let unread = |error: PodError| malformed(&error.to_string());
    let subject = match &object.given {
        Given::Review => match review::of_value(value).map_err(|error| error.to_string())?.subject {
            Subject::Skipped(Reason::Malformed) => {
                let object = value.pointer("/request/object").filter(|object| !object.is_null());
                let object = object.ok_or_else(|| malformed("request.object is missing"))?;
                Subject::Pod(Pod::of_value(object).map_err(unread)?.into())
            }
            subject => subject,
        },
        Given::Pod | Given::Template { .. } => Subject::Pod(object.pod().map_err(unread)?.into()),
    };
    let root = match subject {
        Subject::DaemonSet(_) => Some(DaemonSet::TEMPLATE),
        _ => template.as_deref(),
    };
    let decided = session.decide(namespace, &subject, root.filter(|_| patches)).await;
    match (subject, decided.reason) {
        (Subject::Pod(_), Reason::Malformed) => Err(malformed("it has no containers")),
        _ => Ok(decided),
    }
}
