//! `tolerarch why`: what was decided on a Pod or a workload that is in the cluster, what would be decided today, and
//! why. Reads with the rights of the person who runs it.

mod explained;
mod types;

use std::io;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::check::{Template, templates};
use super::inventory::Shown;
use super::output::{Look, Output, Progress, document, print, shown, tell};
use super::session::{Read, ask_about};
use super::survey::Survey;
use super::{Shared, fail};
use explained::Explained;
use tolerarch_core::image::ImageRef;
use tolerarch_core::pod::Pod;
use tolerarch_kubernetes::cluster::{RequestError, UserClient};
use types::Target;

#[derive(Debug, Args)]
pub(super) struct Why {
    /// A Pod or what brings Pods, as kubectl names them: pod/web-1, deploy/web, cronjob/bills, rollouts.argoproj.io/web
    #[arg(required = true, value_name = "TYPE/NAME")]
    targets: Vec<Target>,
    #[command(flatten)]
    access: super::kubernetes::Access,
    /// How the result is written: aligned columns, or one JSON document
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// What was read before anything is looked up.
struct Found {
    namespace: String,
    survey: Survey,
    objects: Vec<Template>,
    faults: Vec<String>,
}

impl Why {
    pub(super) fn run(self, shared: &Shared) -> ExitCode {
        if self.access.all_namespaces {
            tell("tolerarch: a name is looked for in one namespace: write -n NAMESPACE in place of -A");
            return ExitCode::from(2);
        }
        let read = async |progress: &Progress, discover| {
            progress.show("asking the API server");
            let client = self.access.connect(&shared.environment).await.map_err(|error| fail(&error))?;
            let found = self.find(&client, progress).await;
            let shown = Shown::configured(&client, discover).await;
            progress.show("");
            let shown = shown.map_err(|error| fail(&error))?;
            let images = if client.is_local() { found.images() } else { Vec::new() };
            Ok(Read { images, shown, rest: found })
        };
        let explained = ask_about(shared, read, async |session, mut found: Found| {
            session.progress.show("looking up images");
            let mut all = Vec::new();
            for object in &found.objects {
                all.push(Explained::of(&session, &found.survey, &found.namespace, object).await);
            }
            session.progress.show("");
            found.survey.notes.extend(session.notes);
            (all, found)
        });
        let (explained, found) = match explained {
            Ok(explained) => explained,
            Err(status) => return status,
        };
        found.faults.iter().for_each(|fault| tell(&format!("tolerarch: {}", shown(fault))));
        let notes = &found.survey.notes;
        match self.write(&explained, notes, shared) {
            Err(error) => fail(&error),
            Ok(()) if !found.faults.is_empty() => ExitCode::FAILURE,
            Ok(()) => ExitCode::SUCCESS,
        }
    }

    fn write(&self, all: &[Explained], notes: &[String], shared: &Shared) -> io::Result<()> {
        match self.output {
            Output::Table => {
                let look = Look::of_stdout(&shared.environment);
                let texts: Vec<String> = all.iter().map(|one| one.table(look)).collect();
                notes.iter().for_each(|note| tell(&format!("tolerarch: note: {}", shown(note))));
                print(&texts.join("\n"))
            }
            Output::Json => {
                let objects: Vec<Value> = all.iter().map(Explained::json).collect();
                print(&document(&format!("{:#}", json!({"objects": objects, "notes": notes}))))
            }
        }
    }

    /// Reads the objects, and all Pods of their namespace.
    async fn find(&self, client: &UserClient, progress: &Progress) -> Found {
        let namespace = self.access.namespace.as_deref().unwrap_or(client.namespace()).to_owned();
        let (mut objects, mut faults) = (Vec::new(), Vec::new());
        for target in &self.targets {
            let read = async {
                let Some(path) = target.path(client, &namespace).await? else {
                    return Ok(Err("the API server has no such kind".to_owned()));
                };
                Ok(templates(client.text(&path).await?.as_bytes()))
            };
            let read: Result<Result<Vec<Template>, String>, RequestError> = read.await;
            match read {
                Ok(Ok(found)) => objects.extend(found),
                Ok(Err(message)) => faults.push(format!("{target}: {message}")),
                Err(error) => faults.push(format!("{target}: {error}")),
            }
        }
        let survey = if objects.is_empty() {
            Ok(Survey::default())
        } else {
            Survey::read(client, Some(&namespace), progress).await
        };
        let survey = survey.unwrap_or_else(|error| {
            Survey::noted(format!("Pods cannot be listed, so it is not told where they run: {error}"))
        });
        Found { namespace, survey, objects, faults }
    }
}

impl Found {
    fn images(&self) -> Vec<ImageRef> {
        let pods = self.objects.iter().filter_map(|object| object.pod().ok());
        let images = |pod: Pod<'_>| -> Vec<ImageRef> {
            pod.images().into_iter().filter_map(|usage| usage.image.ok()).collect()
        };
        pods.flat_map(images).collect()
    }
}
