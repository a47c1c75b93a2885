//! Quickstart without a cluster: `cargo run -p quickstart`.
//!
//! Only the cluster is missing; everything else is real:
//!
//! - [`images`]: a registry in this process holds a few images.
//! - [`webhook`]: the webhook runs as `tolerarch serve` runs it, with the YAML configuration that is printed.
//! - [`cases`]: Pods as a ReplicaSet creates them, each with the decision that is expected.
//! - [`client`]: the API server's part. It sends each Pod over HTTPS and applies the patch that comes back.
//!
//! For each Pod the output shows its images and their platforms, the decision and its reason, the patch, and how long
//! the review took.
//!
//! Every Pod is reviewed twice: first with an empty cache, then with a warm one. The last Pod is the first one after
//! its patch, with a sidecar that another webhook has injected.
//!
//! The program exits with 0 if every answer was as expected, and with 1 otherwise. With `-- --keep` it runs until
//! ctrl-c, and prints a curl command that sends one more review.

mod cases;
mod client;
mod images;
mod webhook;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;
use testregistry::Registry;
use tokio::time::Duration;

use cases::Case;
use client::{Answer, Client, review};
use images::Image;
use webhook::Webhook;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Name under which the API server reaches the webhook: `<service>.<namespace>.svc`.
const SERVICE_NAME: &str = "tolerarch.tolerarch.svc";
/// Taint of the multi-arch pool, which an eligible Pod is made to tolerate.
const TAINT: &str = "tolerarch.io/multi-arch";
/// Width of the column that describes a Pod: two more than the longest description.
const POD_WIDTH: usize = 31;

#[tokio::main]
async fn main() -> ExitCode {
    let keep_running = std::env::args().any(|argument| argument == "--keep");
    match run_tour(keep_running).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quickstart: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the tour. An unexpected answer is an error, but only after all answers have been printed.
async fn run_tour(keep_running: bool) -> Result<()> {
    let registry = Registry::start().await;
    let images = images::push(&registry);
    println!(
        "1. A registry at {} has these images:\n",
        registry.address()
    );
    for image in &images {
        let name = short_name(&image.reference);
        println!("   {name:<10} {:<30} {}", image.kind, image.platforms);
    }

    let directory = tempfile::tempdir()?;
    let webhook = Webhook::start(directory.path(), &registry).await?;
    let indented_configuration = webhook.configuration.trim_end().replace('\n', "\n   ");
    println!("\n2. The webhook runs with this configuration:\n\n   {indented_configuration}\n");

    let mut client = Client::connect(webhook.address, &webhook.pki).await?;
    println!("3. Pods are created. * marks the image that decided:\n");
    let reviewed = review_with_empty_cache(&mut client, &registry, &images).await?;
    println!("4. The same Pods once more, now that the images are known:\n");
    let warm_mismatches = review_with_warm_cache(&mut client, &reviewed).await?;

    if keep_running {
        print_curl_command(directory.path(), &webhook, &reviewed[0].case.pod)?;
        tokio::signal::ctrl_c().await?;
    }
    drop(client);
    webhook.stop().await?;
    let cold_mismatches = reviewed
        .iter()
        .filter(|review| review.case.mismatch(&review.answer).is_some())
        .count();
    let unexpected = cold_mismatches + warm_mismatches;
    if unexpected > 0 {
        let error = format!("{unexpected} answers are not as expected: those marked with != above");
        return Err(error.into());
    }
    println!("Everything was as expected.");
    Ok(())
}

/// A Pod with the answer that came back while the cache was empty.
struct Reviewed {
    case: Case,
    answer: Answer,
}

/// Sends each Pod once. The patch of the first answer makes one more Pod, which is sent last.
async fn review_with_empty_cache(
    client: &mut Client,
    registry: &Registry,
    images: &[Image],
) -> Result<Vec<Reviewed>> {
    println!(
        "   {:<POD_WIDTH$}{:<13}{:<28}{:<12}{:<20}MS",
        "POD", "IMAGE", "PUSHED FOR", "DECISION", "REASON"
    );
    let mut reviewed = Vec::new();
    for case in cases::all(registry) {
        let answer = client.review(&case.pod).await?;
        print_cold_answer(&case, &answer, images);
        reviewed.push(Reviewed { case, answer });
    }
    let case = cases::with_injected_sidecar(&reviewed[0].answer.pod, registry);
    let answer = client.review(&case.pod).await?;
    print_cold_answer(&case, &answer, images);
    reviewed.push(Reviewed { case, answer });
    Ok(reviewed)
}

/// Sends each Pod again, and returns the number of answers that are not as expected or differ from the first ones.
async fn review_with_warm_cache(client: &mut Client, reviewed: &[Reviewed]) -> Result<usize> {
    println!(
        "   {:<POD_WIDTH$}{:<12}{:<20}{:>7}{:>11}",
        "POD", "DECISION", "REASON", "MS", "BEFORE"
    );
    let mut mismatches = 0;
    for Reviewed { case, answer: cold } in reviewed {
        let warm = client.review(&case.pod).await?;
        print_warm_answer(case, &warm, cold);
        if case.mismatch(&warm).is_some() || warm.patch != cold.patch {
            mismatches += 1;
        }
    }
    println!();
    Ok(mismatches)
}

/// Prints one line for each image of the Pod, the outcome behind the first, then the operations of the patch.
fn print_cold_answer(case: &Case, answer: &Answer, images: &[Image]) {
    let mut description = case.description;
    let mut outcome = format!(
        "{:<12}{:<20}{:>7}{}",
        answer.decision,
        answer.reason,
        milliseconds(answer.took),
        case.mismatch(answer).unwrap_or_default()
    );
    for reference in case.image_references() {
        let pushed_image = images.iter().find(|image| image.reference == reference);
        let platforms = pushed_image.map_or("not pushed", |image| image.platforms);
        let mut name = short_name(reference).to_owned();
        if answer.image.as_deref() == Some(reference) {
            name.push('*');
        }
        let line = format!("   {description:<POD_WIDTH$}{name:<13}{platforms:<28}{outcome}");
        println!("{}", line.trim_end());
        description = "";
        outcome.clear();
    }
    if let Some(patch) = &answer.patch {
        for operation in &patch.0 {
            let json = serde_json::to_string(operation).unwrap_or_default();
            println!("     {json}");
        }
    }
    println!();
}

/// Prints the outcome on one line, with the time that the same review took with an empty cache.
fn print_warm_answer(case: &Case, warm: &Answer, cold: &Answer) {
    let mut mismatch = case.mismatch(warm).unwrap_or_default();
    if warm.patch != cold.patch {
        mismatch += "  != another patch than before";
    }
    println!(
        "   {:<POD_WIDTH$}{:<12}{:<20}{:>7}{:>11}{mismatch}",
        case.description,
        warm.decision,
        warm.reason,
        milliseconds(warm.took),
        milliseconds(cold.took)
    );
}

/// Prints a curl command that reviews `pod`. Its files are written to `directory`.
fn print_curl_command(directory: &Path, webhook: &Webhook, pod: &Value) -> Result<()> {
    let review_file = directory.join("review.json");
    std::fs::write(&review_file, serde_json::to_string_pretty(&review(pod))?)?;
    let review_file = review_file.display();
    let ca_file = webhook.ca_file.display();
    let port = webhook.address.port();
    println!(
        "5. The webhook runs until ctrl-c. Its metrics are at http://{}/metrics. To send a review yourself:\n",
        webhook.admin_address
    );
    println!(
        "curl --cacert {ca_file} --resolve {SERVICE_NAME}:{port}:127.0.0.1 -H 'Content-Type: application/json' \
         --data-binary @{review_file} 'https://{SERVICE_NAME}:{port}/mutate?timeout=5s'\n"
    );
    Ok(())
}

/// Returns an image reference without its host.
fn short_name(reference: &str) -> &str {
    match reference.split_once('/') {
        Some((_host, name)) => name,
        None => reference,
    }
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64() * 1000.0)
}
