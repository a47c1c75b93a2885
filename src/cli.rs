//! Command line: a module for each subcommand, the parts that they share, and the exit status of the process.
//!
//! Status 0 is success, 1 a failure, 2 wrong usage. A subcommand may define others.

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
use self::shared::{Shared, apply_user_defaults, flag, warn};
use crate::serve::{run_certificates, run_controller};
use tolerarch_images::registry::install_key_exchange;
use tolerarch_support::environment::Environment;
use tolerarch_text::yaml;

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
    /// Run the webhook: answer reviews over HTTPS at /mutate, metrics and probes on the admin port
    #[command(after_help = "\
Example:
  tolerarch serve --tls-cert tls.crt --tls-key tls.key --log-format text")]
    Serve(serve::Serve),
    /// Run the controller: do the work after admission, with rights in the cluster
    ///
    /// Adds the pools' tolerations to Pods that have no node yet and that the webhook could not decide. Uses the same
    /// configuration as serve. Several replicas may run: a Lease elects the one that acts.
    #[command(after_help = "\
Example:
  tolerarch controller --config config.yaml")]
    Controller(serve::Service),
    /// Issue the webhook's certificates (tls.mode managed), with a separate account
    ///
    /// Keeps the CA in one Secret and the serving certificate, which the webhook reads, in another. Writes the CA into
    /// the caBundle of the webhooks. One replica is enough: the webhook keeps serving without it.
    #[command(after_help = "\
Example:
  tolerarch certificates --config config.yaml")]
    Certificates(serve::Service),
    /// Validate the configuration: print it with the origin of each value, or print all its faults
    ///
    /// Does not open the certificates and credentials that the configuration names: this machine may not have them.
    /// serve opens them when it starts. check and inspect open all but the serving certificate, and continue without
    /// those that are missing.
    #[command(after_help = "\
Examples:
  tolerarch config --config config.yaml
  tolerarch config --schema > config.schema.json")]
    Config(config::Show),
    /// Show what the webhook would do with the Pods and workloads in files
    ///
    /// Reads Pods, Deployments, StatefulSets, DaemonSets, ReplicaSets, ReplicationControllers, Jobs, CronJobs,
    /// PodTemplates, Lists of them, and AdmissionReviews, as YAML or JSON with any number of documents. In other kinds
    /// it finds Pod templates by their shape, or where --workload says they are; images elsewhere in such a kind are
    /// listed as not looked at.
    ///
    /// Decides with the webhook's own code and the same configuration, but waits for each image for lookup.timeout, not
    /// lookup.budget. Does not evaluate the selectors of the webhook configuration.
    #[command(after_help = "\
Examples:
  tolerarch check -f deployment.yaml
  helm template my-chart | tolerarch check -f - --fail-on unsupported,unknown
  kubectl get deployments -A -o yaml | tolerarch check -f - -o json
  tolerarch check -f web.yaml -o patch >web.patch &&
    kubectl patch -f web.yaml --type=json --patch-file=web.patch

Exit status:
  0  everything was decided
  1  something could not be read, or there was nothing to read; the rest is done
  2  wrong usage
  3  an outcome that --fail-on names has occurred")]
    Check(check::Check),
    /// Show the platforms of images, and how they were determined
    ///
    /// Uses the configuration of the cluster if there is a kubeconfig, but needs no cluster. Files that the
    /// configuration names and this machine lacks are listed in notes.
    #[command(after_help = "\
Examples:
  tolerarch inspect nginx:1.27
  tolerarch inspect --config config.yaml -o json ghcr.io/acme/agent:3 redis
  tolerarch inspect --explain registry.example.com/team/app

Exit status:
  0  the platforms of all images are known
  1  the platforms of an image could not be determined; the rest is done
  2  wrong usage")]
    Inspect(inspect::Inspect),
    /// Check an installation from end to end, and say how to fix each fault
    ///
    /// Checks the webhook configurations with their certificates, Services, scope and order; the rights, the pools, the
    /// nodes, Karpenter's NodePools and the cluster-autoscaler. Creates a dry-run Pod that only tolerarch can have
    /// answered. Uses your own rights and changes nothing. Reports and leaves out what you may not read. Lists faults
    /// first.
    ///
    /// With --pre, checks before an installation whether the cluster is ready for its first node of another
    /// architecture: DaemonSets and their images, NodePools, node classes, node groups, policies, quotas, kubelets and
    /// Pods.
    #[command(after_help = "\
Examples:
  tolerarch doctor --pre
  tolerarch doctor
  tolerarch doctor -n team -o json

Exit status:
  0  no fault; with --pre, no fault in what could be checked
  1  the cluster could not be queried
  2  wrong usage
  3  there is a fault
  4  no fault, but no dry run has shown that Pods are decided; not with --pre")]
    Doctor(doctor::Doctor),
    /// Show how much of a cluster could run on every platform, and which images prevent the rest
    ///
    /// Adds up the CPU and memory that Pods request, by what their images support. Ranks the images that make Pods
    /// ineligible. Lists what is unknown and how to resolve it, Pods that are eligible and were created without the
    /// pools' tolerations (missed), and Pods on nodes that their images do not support (misplaced).
    ///
    /// Needs no installation, and only rights to list. Looks up each image once, within the webhook's limits.
    #[command(after_help = "\
Examples:
  tolerarch report
  tolerarch report -n shop --by workload
  tolerarch report --prices prices.yaml --newer -o html >report.html

Exit status:
  0  everything that could be read is reported
  1  the cluster could not be queried, or the namespace does not exist
  2  wrong usage")]
    Report(report::Command),
    /// Explain a Pod or a workload of the cluster: what was decided, and what would be decided today
    ///
    /// Shows each image with its platforms and those it lacks, each pool and whether it is open, and where the Pods run.
    /// Decides with the webhook's own code and the configuration of the cluster, or of --config. Uses your own rights
    /// and changes nothing.
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
    /// Show the pools, their NodePools and nodes, and where new nodes come from
    ///
    /// Lists each pool of the configuration, and each pool that Karpenter's NodePools define by the label
    /// tolerarch.io/pool: its platforms, its NodePools with their weights, its nodes, platforms of these that the pool
    /// does not name, and the NodePool from which Karpenter takes the next node. Needs the right to list nodes and
    /// nodepools.
    ///
    /// If the cluster-autoscaler runs, also lists its node groups with nodes of the pool, and whether it takes these
    /// first. For that it reads the ConfigMaps and Deployments of the cluster-autoscaler.
    #[command(after_help = "\
Examples:
  tolerarch pools
  tolerarch pools --config config.yaml -o json
  tolerarch pools -o yaml >pools.yaml

Exit status:
  0  everything that could be read is shown
  1  the cluster could not be queried
  2  wrong usage")]
    Pools(pools::Command),
    /// Print a script that completes commands and flags in a shell
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
        yaml::hide_parser_panics();
        let program = std::env::args_os().next();
        let mut matches = command(program.as_deref().map(Path::new)).get_matches();
        let parsed = Self::from_arg_matches_mut(&mut matches);
        let Self {
            command,
            mut shared,
        } = parsed.unwrap_or_else(|error| error.exit());
        shared.environment = Environment::of_process();
        install_key_exchange();
        let result = match command {
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
        result.unwrap_or_else(|failure| failure.print())
    }
}

/// Prints a completion script.
fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "tolerarch", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the command under the name by which it was called: kubectl finds plugins by their file names.
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
