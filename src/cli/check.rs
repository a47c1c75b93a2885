//! `tolerarch check`: the webhook's decisions on the objects in files, made by the webhook's own code.

pub mod documents;
mod kinds;
mod part;
mod report;
mod verdict;
pub mod workload;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::mem;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;

use clap::{Args, ValueEnum, ValueHint};
use futures_util::stream::{self, StreamExt};

use super::output::{columns, document, print, print_error};
use super::session::{FailOn, Session, run_without_cluster_pools};
use super::{Failure, Shared};
use kinds::CustomKind;
use report::Report;
use tolerarch_core::image::ImageRef;
use tolerarch_support::file;
use tolerarch_text::yaml::Fault;
use verdict::Verdict;
use workload::{Contents, InputError};
pub(super) use workload::{Object, Place};

/// Exit status if an outcome that `--fail-on` names has occurred.
const FAILED_ON: u8 = 3;
/// Maximum number of objects that are decided at a time. The webhook's limits bound the lookups.
const AT_A_TIME: usize = 256;

#[derive(Debug, Args)]
pub(super) struct Check {
    /// A file of YAML or JSON documents, a directory of such files, or - for standard input. May be repeated
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    file: Vec<PathBuf>,
    /// Files without -f: refused with a hint
    #[arg(hide = true, value_name = "FILE", value_parser = by_flag, value_hint = ValueHint::Other)]
    _stray: Vec<String>,
    /// The format of the result: aligned columns, one JSON document, or the JSON patches alone, one a line
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Read directories and all directories below them
    #[arg(short = 'R', long)]
    recursive: bool,
    /// A kind that creates Pods, and the path of the Pod template in it. Replaces the search by shape for that kind. May
    /// be repeated, also for a kind with several templates. [] is each item of a list, * each member
    #[arg(long, value_name = "KIND.GROUP=.PATH")]
    workload: Vec<CustomKind>,
    /// Decide as for the namespaces with the label tolerarch.io/profile=NAME
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Exit with status 3 if an image lacks a platform of every pool (unsupported), if the platforms of an image could
    /// not be determined (unknown), or if an image is named outside the Pod templates that were found (not-looked-at). A
    /// toleration that is removed again counts as unsupported and unknown
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

fn by_flag(file: &str) -> Result<String, String> {
    Err(format!("files are named by -f: check -f {file}"))
}

impl Check {
    pub(super) fn run(self, shared: &Shared) -> Result<ExitCode, Failure> {
        let mut report = Report::default();
        self.read(&mut report);
        let objects = mem::take(&mut report.contents.objects);
        let images: Vec<ImageRef> = objects.iter().flatten().flat_map(Object::images).collect();
        let profile = self.profile.as_deref();
        run_without_cluster_pools(shared, None, profile, images, async |session| {
            decide(&session, objects, &mut report).await;
        })?;
        for error in &report.errors {
            print_error(&format!("tolerarch: {error}"));
        }
        match self.output {
            Output::Table => print(&report.table(columns()))?,
            Output::Json => print(&document(&serde_json::to_string_pretty(&report)?))?,
            Output::Patch => report.patches()?,
        }
        for hint in report.hints() {
            print_error(&format!("tolerarch: hint: {hint}"));
        }
        Ok(if !report.errors.is_empty() {
            ExitCode::FAILURE
        } else if self.fails_on(&report) {
            FAILED_ON.into()
        } else {
            ExitCode::SUCCESS
        })
    }

    /// Returns whether an outcome has occurred that `--fail-on` names.
    fn fails_on(&self, report: &Report) -> bool {
        let is_named = |outcome: &FailOn| self.fail_on.contains(outcome);
        let fails = |verdict: &Verdict| FailOn::of(verdict.reason).iter().any(is_named);
        let has_unseen = !report.contents.not_looked_at.is_empty();
        has_unseen && is_named(&FailOn::NotLookedAt) || report.results.iter().any(fails)
    }

    /// Reads all files.
    fn read(&self, report: &mut Report) {
        let Report {
            contents,
            files: file_count,
            ..
        } = report;
        let mut documents = 0;
        for given in &self.file {
            let sources = match sources(given, self.recursive) {
                Ok(sources) => sources,
                Err(error) => {
                    let error = file_error(given, format!("cannot be read: {error}"));
                    contents.objects.push(Err(error));
                    Vec::new()
                }
            };
            for source in &sources {
                documents += read_file(source, &self.workload, contents);
            }
            *file_count += sources.len().max(1);
        }
        // A check without any document must not look like a success.
        if documents == 0 && contents.objects.is_empty() {
            for given in &self.file {
                let error = file_error(given, "no objects: there is no document in it".to_owned());
                contents.objects.push(Err(error));
            }
        }
    }
}

fn file_error(file: &Path, message: String) -> InputError {
    InputError {
        file: file.display().to_string(),
        document: 0,
        line: 0,
        message,
    }
}

/// Returns the Pods of an object from the API server, one for each template.
pub(super) fn objects_of(object: &[u8]) -> Result<Vec<Object>, String> {
    let mut contents = Contents::default();
    for document in documents::read(object) {
        let document = document.map_err(|fault| fault.message)?;
        contents.add(&document, &Place::default(), None, &[]);
    }
    let Contents {
        objects,
        skipped,
        not_looked_at,
        without_template,
        ..
    } = contents;
    let objects: Result<Vec<Object>, InputError> = objects.into_iter().collect();
    let objects = objects.map_err(|error| error.message)?;
    if !objects.is_empty() {
        return Ok(objects);
    }
    let mut passed_over = skipped
        .keys()
        .chain(not_looked_at.keys())
        .chain(without_template.keys());
    match passed_over.next() {
        Some(kind) => Err(format!("no Pod template is found in {kind}")),
        None => Ok(objects),
    }
}

/// File to read.
struct Source {
    path: PathBuf,
    /// Whether the file was found in a directory. Such a file has to be a regular one. A file that the user names may be a
    /// pipe, such as a shell's `<(…)`.
    is_listed: bool,
}

/// Returns the file itself, or the manifests of a directory. Links to directories are not followed, as by `kubectl -f`.
fn sources(given: &Path, recursive: bool) -> io::Result<Vec<Source>> {
    if given.as_os_str() == "-" || !fs::metadata(given)?.is_dir() {
        return Ok(vec![Source {
            path: given.to_owned(),
            is_listed: false,
        }]);
    }
    let mut paths = Vec::new();
    let mut directories = vec![given.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let path = entry.path();
            let extension = path.extension().and_then(OsStr::to_str);
            if matches!(extension, Some("yaml" | "yml" | "json")) && !path.is_dir() {
                paths.push(path);
            } else if recursive && entry.file_type()?.is_dir() {
                directories.push(path);
            }
        }
    }
    paths.sort();
    let listed = |path| Source {
        path,
        is_listed: true,
    };
    Ok(paths.into_iter().map(listed).collect())
}

/// Returns the content of a file, or why it cannot be read.
fn content(Source { path, is_listed }: &Source) -> Result<Vec<u8>, String> {
    let read = if path.as_os_str() == "-" {
        bounded(io::stdin().lock())
    } else if *is_listed {
        file::regular(path, documents::FILE)
    } else {
        File::open(path).and_then(bounded)
    };
    read.map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => format!(
            "larger than the {} MiB that are read",
            documents::FILE >> 20
        ),
        _ => format!("cannot be read: {error}"),
    })
}

fn bounded(stream: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(documents::FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > documents::FILE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// Reads a file, and returns the number of its documents.
fn read_file(source: &Source, custom: &[CustomKind], contents: &mut Contents) -> usize {
    let fault = |message: String| vec![Err(Fault::new(0, message))];
    // Document number 0 stands for the whole file.
    let (first, documents) = match content(source) {
        Err(why) => (0, fault(why)),
        Ok(bytes) => (1, documents::read(&bytes)),
    };
    let count = documents.len();
    for (number, document) in (first..).zip(documents) {
        let place = Place {
            file: source.path.display().to_string(),
            document: number,
            ..Place::default()
        };
        match document {
            Ok(node) => contents.add(&node, &place, None, custom),
            Err(fault) => contents.objects.push(Err(place.fault(fault))),
        }
    }
    count
}

/// Decides on all objects, [`AT_A_TIME`] at a time, in their order.
async fn decide(session: &Session, objects: Vec<Result<Object, InputError>>, report: &mut Report) {
    let all = objects.len();
    let one = async |object: Result<Object, InputError>| {
        let object = object?;
        let refused = |message: String| {
            let fault = Fault::new(object.place.line, message);
            object.place.fault(fault)
        };
        Verdict::of(&object, session).await.map_err(refused)
    };
    let mut verdicts = pin!(stream::iter(objects).map(one).buffered(AT_A_TIME));
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
