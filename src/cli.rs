//! Command line: a module for each subcommand, their shared parts, and the exit status of the process.
//!
//! Status 0 is success, 1 a failure, 2 wrong usage; a subcommand may have more.

mod advice;
mod autoscaler;
pub mod check;
mod config;
mod configured;
mod doctor;
mod failure;
mod inspect;
mod installed;
mod inventory;
mod kubernetes;
mod output;
mod pools;
mod report;
mod serve;
mod session;
mod shared;
mod survey;
mod why;

use std::path::Path;
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::{Shell, generate};

use self::failure::Failure;
use self::shared::{Shared, flag, personal, warn};
use crate::serve::{run_certificates, run_controller};
use tolerarch_images::registry::install_key_exchange;
use tolerarch_support::environment::Environment;

/// Opens multi-arch node pools to the Pods whose images run on every architecture of the pool.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 80)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    shared: Shared,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the webhook: reviews over HTTPS at /mutate, metrics and probes on the admin port
    #[command(after_help = "\
Example:
  tolerarch serve --tls-cert tls.crt --tls-key tls.key --log-format text")]
    Serve(serve::Serve),
    /// Run the controller: what goes on after admission, and needs rights in the cluster
    ///
    /// Opens pools to Pods without a node that the webhook could not decide. Uses
    /// the same configuration as serve. Several replicas may run: one of them leads, by a Lease.
    #[command(after_help = "\
Example:
  tolerarch controller --config config.yaml")]
    Controller(serve::Service),
    /// Issue the webhook's certificates (tls.mode managed), with an account of its own
    ///
    /// Keeps the CA in one Secret, what it signs in another, from which the webhook serves, and the
    /// CA in the caBundle of the webhooks. One replica is enough: the webhook goes on without it.
    #[command(after_help = "\
Example:
  tolerarch certificates --config config.yaml")]
    Certificates(serve::Service),
    /// Validate the configuration and print it with the origin of each value; or all its faults
    ///
    /// The files that it names, certificates and credentials, are not opened, because they may not exist where this
    /// runs. serve opens them when it starts; check and inspect open all but the serving certificate, and go on without
    /// those that are not there.
    #[command(after_help = "\
Examples:
  tolerarch config --config config.yaml
  tolerarch config --schema > config.schema.json")]
    Config(config::Show),
    /// Show what the webhook would do with the Pods and workloads in files
    ///
    /// Takes Pods, Deployments, StatefulSets, DaemonSets, ReplicaSets, ReplicationControllers, Jobs, CronJobs,
    /// PodTemplates, Lists of them, and AdmissionReviews, many documents, YAML or JSON; and Pod templates in any other
    /// kind, found by their shape (--workload says where they are). Images elsewhere in such a kind are named as not
    /// looked at. The webhook's own code decides, with the same configuration, but waits for each image as long as
    /// lookup.timeout says, not lookup.budget. The webhook configuration's selectors are not evaluated.
    #[command(after_help = "\
Examples:
  tolerarch check -f deployment.yaml
  helm template my-chart | tolerarch check -f - --fail-on unsupported,unknown
  kubectl get deployments -A -o yaml | tolerarch check -f - -o json
  tolerarch check -f web.yaml -o patch >web.patch &&
    kubectl patch -f web.yaml --type=json --patch-file=web.patch

Exit status:
  0  everything was decided
  1  something could not be read, or there was nothing; the rest is done
  2  wrong usage
  3  what --fail-on names has occurred")]
    Check(check::Check),
    /// Show the platforms of images, and how they were determined
    ///
    /// Takes the configuration of the cluster, where a kubeconfig leads to one; no cluster is needed. What the
    /// configuration names and this machine does not have is a note.
    #[command(after_help = "\
Examples:
  tolerarch inspect nginx:1.27
  tolerarch inspect --config config.yaml -o json ghcr.io/acme/agent:3 redis
  tolerarch inspect --explain registry.example.com/team/app

Exit status:
  0  the platforms of all images are known
  1  those of an image could not be determined; the rest is done
  2  wrong usage")]
    Inspect(inspect::Inspect),
    /// Prove an installation from end to end, and name what to do
    ///
    /// Looks at the webhook configurations, their certificates, Services and scope, at the order among other webhooks,
    /// at rights, pools, nodes, Karpenter's NodePools and the cluster-autoscaler, and creates a dry-run Pod that only
    /// tolerarch can have answered. Uses your own rights, and changes nothing. What you have no right to read is said
    /// and left out. Faults come first.
    ///
    /// With --pre, before anything is installed: may the first node of another architecture come? Looks at DaemonSets
    /// and their images, at NodePools, node classes and node groups, at policies, quotas and kubelets, and at the Pods.
    #[command(after_help = "\
Examples:
  tolerarch doctor --pre
  tolerarch doctor
  tolerarch doctor -n team -o json

Exit status:
  0  nothing is wrong; with --pre: nothing that was tried
  1  the cluster could not be asked
  2  wrong usage
  3  something is wrong
  4  nothing wrong was found, but no dry run has shown that Pods are decided; not with --pre")]
    Doctor(doctor::Doctor),
    /// Show how much of a cluster could run on every platform, and which images keep how much from it
    ///
    /// Sums the CPU and memory that Pods request by what their images support, ranks the images that keep Pods from the
    /// pools, says what is not known and what to do about it, and names Pods that could use a pool and were created
    /// without (missed), and those on nodes that their images do not support (misplaced). Needs no installation, and no
    /// right but to list; each image is looked up once, within the webhook's limits.
    #[command(after_help = "\
Examples:
  tolerarch report
  tolerarch report -n shop --by workload
  tolerarch report --prices prices.yaml --newer -o html >report.html

Exit status:
  0  what could be read is reported
  1  the cluster could not be asked, or there is no such namespace
  2  wrong usage")]
    Report(report::Command),
    /// Explain what was decided on a Pod or a workload of the cluster, and what would be decided today
    ///
    /// Shows each image with its platforms and what it lacks, each pool and whether it is open, and where the Pods run.
    /// The webhook's own code decides, with the configuration of the cluster, or that of --config. Uses your own
    /// rights, and changes nothing.
    #[command(after_help = "\
Examples:
  tolerarch why deploy/web
  tolerarch why -n shop pod/web-5d5c-x1 cronjob/bills -o json
  tolerarch why rollouts.argoproj.io/web

Exit status:
  0  everything is explained
  1  something could not be read; the rest is done
  2  wrong usage")]
    Why(why::Why),
    /// Show the pools, what the cluster says about them, and where new nodes come from
    ///
    /// For each pool of the configuration, and each that Karpenter's NodePools are by their label tolerarch.io/pool:
    /// its platforms, the NodePools with their weights and the nodes that it opens, platforms of these that it does not
    /// name, and from which NodePool Karpenter takes the next node. Needs the right to list nodes and nodepools. Where
    /// the cluster-autoscaler runs, also its node groups with nodes of the pool, and whether it takes these first; for
    /// that it reads its ConfigMaps and Deployments.
    #[command(after_help = "\
Examples:
  tolerarch pools
  tolerarch pools --config config.yaml -o json
  tolerarch pools -o yaml >pools.yaml

Exit status:
  0  what could be read is shown
  1  the cluster could not be asked
  2  wrong usage")]
    Pools(pools::Command),
    /// Write a script that completes commands and flags
    #[command(after_help = "Example:\n  source <(tolerarch completions bash)")]
    Completions {
        /// The shell
        #[arg(value_parser = PossibleValuesParser::new(["bash", "zsh", "fish"]).try_map(|name| name.parse::<Shell>()))]
        shell: Shell,
    },
}

impl Cli {
    /// Parses the arguments of the process and runs the subcommand. Wrong usage ends the process with status 2.
    pub fn parse_and_run() -> ExitCode {
        let program = std::env::args_os().next();
        let mut matches = command(program.as_deref().map(Path::new)).get_matches();
        let parsed = Self::from_arg_matches_mut(&mut matches);
        let Self {
            command,
            mut shared,
        } = parsed.unwrap_or_else(|error| error.exit());
        shared.environment = Environment::of_process();
        install_key_exchange();
        let done = match command {
            Command::Serve(serve) => serve.run(&shared),
            Command::Controller(controller) => controller.run(&shared, [], run_controller),
            Command::Certificates(certificates) => certificates.run(&shared, [], run_certificates),
            Command::Config(show) => show.run(&shared),
            Command::Check(check) => check.run(&shared),
            Command::Inspect(inspect) => inspect.run(&shared),
            Command::Doctor(doctor) => doctor.run(&shared),
            Command::Report(report) => report.run(&shared),
            Command::Why(why) => why.run(&shared),
            Command::Pools(pools) => pools.run(&shared),
            Command::Completions { shell } => completions(shell),
        };
        done.unwrap_or_else(|failure| failure.tell())
    }
}

/// Prints a completion script.
fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "tolerarch", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the command under the name by which it was called: kubectl finds its plugins by the names of their files.
fn command(program: Option<&Path>) -> clap::Command {
    let name = program
        .and_then(Path::file_stem)
        .and_then(|name| name.to_str());
    let command = Cli::command();
    if name == Some("kubectl-tolerarch") {
        command.bin_name("kubectl tolerarch")
    } else {
        command
    }
}

/// Properties that hold for any input of a command.
#[cfg(test)]
mod tests;
