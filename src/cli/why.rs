//! `tolerarch why` explains the earlier decision on a Pod or workload and the one of today. Reads with the user's rights.

mod explained;
mod types;

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::advice::unread_pull_secrets;
use super::check::{Object, objects_of};
use super::installed::ignored_labels;
use super::output::{Output, Progress, columns, json, paragraphs, print, print_error};
use super::session::{Session, run};
use super::survey::Survey;
use super::{Failure, Shared};
use explained::Explained;
use tolerarch_kubernetes::cluster::{ServedKinds, UserClient};
use types::Target;

#[derive(Debug, Args)]
pub(super) struct Why {
    /// A Pod or a workload, as kubectl names them: pod/web-1, deploy/web, rollouts.argoproj.io/web, jobs.v1.batch/x
    #[arg(required = true, value_name = "TYPE/NAME")]
    targets: Vec<Target>,
    #[command(flatten)]
    access: super::kubernetes::Access,
    /// The format of the result: aligned columns, or one JSON document
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Explanations of the objects, with messages for the user.
struct Explanation {
    objects: Vec<Explained>,
    notes: Vec<String>,
    /// Messages about objects that could not be read.
    faults: Vec<String>,
}

impl Why {
    pub(super) fn run(self, shared: &Shared) -> Result<ExitCode, Failure> {
        if self.access.all_namespaces {
            let message = "why looks for names in one namespace: write -n NAMESPACE in place of -A";
            return Err(Failure::Usage(message.to_owned()));
        }
        let Explanation {
            objects,
            notes,
            faults,
        } = run(shared, async |progress| {
            self.explain(shared, progress).await
        })?;
        for fault in &faults {
            print_error(&format!("tolerarch: {fault}"));
        }
        let text = match self.output {
            Output::Table => {
                for note in &notes {
                    print_error(&format!("tolerarch: note: {note}"));
                }
                let width = columns();
                paragraphs(objects.iter().map(|object| object.table(width)))
            }
            Output::Json => json(&json!({"objects": objects, "notes": notes}))?,
        };
        print(&text)?;
        if faults.is_empty() {
            Ok(ExitCode::SUCCESS)
        } else {
            Ok(ExitCode::FAILURE)
        }
    }

    async fn explain(&self, shared: &Shared, progress: Progress) -> Result<Explanation, Failure> {
        progress.show("querying the API server");
        let client = self.access.connect(&shared.environment)?;
        let mut configured = self.access.configured(shared, &client).await?;
        let namespace = self.access.namespace.as_deref();
        let namespace = namespace.unwrap_or(&client.namespace);
        let (objects, faults) = self.find(&client, namespace).await;
        let mut survey = Survey::default();
        if !objects.is_empty() {
            survey = survey_of(&client, namespace, &progress).await?;
        }
        let reviewed = configured.reviewed.take();
        let scope = reviewed.as_ref().zip(survey.namespaces.get(namespace));
        let mut notes = std::mem::take(&mut survey.notes);
        if let Some((scope, labels)) = scope {
            for (key, value) in ignored_labels(scope, labels) {
                notes.push(format!(
                    "the label {key}={value} of the namespace has no effect"
                ));
            }
        }
        let images = objects.iter().flat_map(Object::images);
        let session = Session::start(shared, configured, progress, Some(&client), images).await?;
        session.progress.show("looking up images");
        let mut explained = Vec::new();
        let mut unread = 0;
        for object in &objects {
            let one = Explained::of(&session, &survey, namespace, scope, object, &mut notes).await;
            if let Ok(pod) = object.pod()
                && session.lacks_pull_secrets(one.today.reason, &pod)
            {
                unread += 1;
            }
            explained.push(one);
        }
        notes.extend(session.notes);
        notes.extend(unread_pull_secrets(unread, "these objects"));
        Ok(Explanation {
            objects: explained,
            notes,
            faults,
        })
    }

    /// Returns the objects, and messages about those that could not be read.
    async fn find(&self, client: &UserClient, namespace: &str) -> (Vec<Object>, Vec<String>) {
        let mut objects = Vec::new();
        let mut faults = Vec::new();
        let kinds = match ServedKinds::read(client).await {
            Ok(kinds) => kinds,
            Err(error) => {
                let all = self
                    .targets
                    .iter()
                    .map(|target| format!("{}: {error}", target.text));
                return (objects, all.collect());
            }
        };
        for target in &self.targets {
            match read(client, target, &kinds, namespace).await {
                Ok(read) => objects.extend(read),
                Err(message) => faults.push(format!("{}: {message}", target.text)),
            }
        }
        (objects, faults)
    }
}

/// Reads a target, and returns its Pod or Pod templates.
async fn read(
    client: &UserClient,
    target: &Target,
    kinds: &ServedKinds,
    namespace: &str,
) -> Result<Vec<Object>, String> {
    let path = target.path(kinds, namespace)?;
    let text = client.text(&path).await;
    let text = text.map_err(|error| error.to_string())?;
    objects_of(text.as_bytes())
}

/// Reads the Pods of a namespace with their owners and nodes; only the namespace's settings if Pods cannot be listed.
async fn survey_of(
    client: &UserClient,
    namespace: &str,
    progress: &Progress,
) -> Result<Survey, Failure> {
    let error = match Survey::read(client, Some(namespace), None, progress).await {
        Ok(survey) => return Ok(survey),
        Err(error) => error,
    };
    let mut survey = if error.is_forbidden() {
        Survey::without_pods(client, namespace).await?
    } else if error.is_missing() {
        Survey::default()
    } else {
        return Err(error.into());
    };
    let note = format!("Pods cannot be listed, so the result does not say where they run: {error}");
    survey.notes.push(note);
    Ok(survey)
}
