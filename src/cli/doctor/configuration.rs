//! Configuration of an installation, as its Pods have it.

use super::findings::{Exam, Findings, Status, some_of};
use super::installation::Backend;
use crate::cli::installed::{Installed, Unconfigured};
use crate::config::{Config, Sources};
use tolerarch_core::policy::Mode;

/// Checks the configuration of the Pods and returns it: from the file if the user names one, otherwise from the mounted
/// ConfigMap.
pub(super) async fn check(exam: &mut Exam<'_>, backend: &Backend<'_>) -> Option<Config> {
    let Exam {
        client,
        config,
        findings,
        ..
    } = exam;
    let installed = match config {
        Some(file) => {
            let source = file.display().to_string();
            let text = findings.read("configuration", &source, std::fs::read_to_string(file))?;
            Installed {
                source,
                text,
                ..Installed::default()
            }
        }
        None => match Installed::mounted(client, &backend.namespace, &backend.workload).await {
            Ok(installed) => installed,
            Err(Unconfigured::Absent(why) | Unconfigured::Unread(why)) => {
                findings.unknown("configuration", why);
                return None;
            }
        },
    };
    let has_arrived = installed.change.is_none();
    if let Some(change) = installed.change {
        let fix = "kubelets update it within two minutes; then run this again";
        findings.add(Status::Unknown, "configuration", change, fix);
    }
    let source = installed.source;
    let sources = Sources {
        environment: installed.environment,
        ..Sources::default()
    };
    match sources.read(&installed.text) {
        Ok(loaded) => {
            findings.ok("configuration", format!("{source} is valid"));
            check_mode(&loaded.config, has_arrived, findings);
            Some(loaded.config)
        }
        Err(faults) => {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            let message = format!("{source} is not valid: {}", faults.join("; "));
            let fix = "correct it: running Pods keep the last valid one, new Pods do not start";
            findings.failed("configuration", message, fix);
            None
        }
    }
}

fn check_mode(config: &Config, has_arrived: bool, findings: &mut Findings) {
    let mut observing = Vec::new();
    if config.policy.mode == Mode::Observe {
        observing.push("the default profile");
    }
    for (name, profile) in &config.profiles {
        if profile.mode == Mode::Observe {
            observing.push(name);
        }
    }
    match some_of(observing).as_str() {
        "" if has_arrived => findings.ok("mode", "the configuration says enforce"),
        "" => findings.unknown("mode", "enforce, once all replicas have the configuration"),
        names => {
            let message = format!(
                "observe ({names}): Pods are decided, counted and logged, and none is changed"
            );
            let fix =
                "set it to enforce (config.mode in the chart) when the log says what you expect";
            findings.add(Status::Unknown, "mode", message, fix);
        }
    }
}
