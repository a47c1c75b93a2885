//! What users expect of tolerarch, on a real control plane. `e2e/README.md` says how to run it.
//!
//! The scenarios run one after the other, each in its own namespace: some measure, and the API server's metrics do not tell
//! scenarios apart.

#![allow(
    clippy::too_many_lines,
    clippy::cognitive_complexity,
    reason = "a test tells one story, however long"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests and their support"
)]

mod architectures;
mod at_scale;
mod breakages;
mod broken_nodes;
mod certificates;
mod chart;
mod churn;
mod cluster_autoscaler;
mod cluster_autoscaler_doctor;
mod cluster_autoscaler_nodes;
mod controller;
mod creations;
mod daemonsets;
mod discovery;
mod doctor;
mod doctor_pre;
mod doctor_pre_admission;
mod documentation;
mod failed_images;
mod faults;
mod karpenter;
mod load;
mod manifests;
#[path = "../../support/migration.rs"]
#[allow(dead_code, reason = "the tests of the program use the rest")]
mod migration;
mod monitoring;
mod node_affinity;
mod node_files;
mod node_taints;
mod nodes;
mod opt_outs;
mod outages;
mod peers;
mod placement;
mod podtemplates;
#[path = "../../support/prometheus.rs"]
mod prometheus;
mod real_images;
mod registries;
mod reinvocation;
mod report;
mod run;
mod scale_up;
mod selection;
mod shapes;
mod tenants;
mod workloads;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use scenarios::{
    Archaware, Cluster, ClusterAutoscaler, Kind, Tool, WorkloadController, is_optimized, soon,
};

use self::run::{LIMIT, LONG, Scenario, conclude, trials};

/// The variable that chooses the scenarios: `landing` or `all`.
const SCENARIOS: &str = "E2E_SCENARIOS";

/// The scenarios that run for every change: those that find most for the time they take.
const LANDING: [&str; 19] = [
    // Pods get the toleration and run in the pool, or neither, whoever creates them.
    "placement::multi_arch_deployment_runs_in_pool_if_plain_node_is_full",
    "placement::single_arch_pods_stay_out_of_the_pool",
    "placement::every_image_of_a_pod_counts",
    "placement::every_kind_of_workload_gets_the_toleration",
    "opt_outs::api_server_does_not_call_for_opted_out_pods",
    "opt_outs::match_conditions_prevent_calls_for_all_skipped_pods",
    "reinvocation::single_arch_sidecar_removes_the_toleration",
    "daemonsets::daemon_sets_run_in_the_pool_without_extra_rollouts",
    // No Pod is rejected or delayed.
    "shapes::webhook_causes_no_rejection_of_generated_pods",
    "faults::pods_are_created_while_the_webhook_is_down",
    "registries::pods_stay_unchanged_while_the_registry_is_down",
    // The installation, its rights, and its documentation.
    "manifests::pods_of_the_manifests_are_created_unchanged",
    "manifests::api_server_accepts_the_chart_with_every_value_file",
    "certificates::managed_certificates_are_replaced_without_a_failed_call",
    "controller::pods_are_repaired_when_their_registry_returns",
    "failed_images::failed_image_is_kept_away_and_tenants_affect_no_others",
    "doctor::doctor_accepts_a_sound_installation_and_names_faults",
    "documentation::every_documented_command_works",
    // The autoscaler creates the right nodes.
    "karpenter::nodes_are_created_in_the_pool_that_the_images_allow",
];

macro_rules! scenarios {
    ($($module:ident :: $name:ident),* $(,)?) => {
        vec![$(Scenario {
            name: concat!(stringify!($module), "::", stringify!($name)),
            run: |cluster| Box::pin($module::$name(cluster)),
        }),*]
    };
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let mut all = all_trials();
    match std::env::var(SCENARIOS).as_deref() {
        Ok("landing") => all = landing(all),
        Ok("all" | "") | Err(_) => {}
        Ok(other) => panic!("{SCENARIOS}: {other} is neither landing nor all"),
    }
    let conclusion = libtest_mimic::run(&arguments, all);
    conclude(conclusion.has_failed());
    conclusion.exit_code()
}

/// The scenarios that this cluster and this machine can run, in the order in which they run.
fn all_trials() -> Vec<Trial> {
    let mut all: Vec<Trial> = Vec::new();
    if Cluster::has_real_nodes() {
        all.extend(trials(on_real_nodes(), LONG));
    }
    all.extend(trials(anywhere(), LIMIT));
    if Cluster::has_real_nodes() {
        all.extend(ignored(slow_on_real_nodes()));
        if Kind::has_emulated_node() {
            all.extend(trials(on_two_architectures(), LONG));
        }
        // The last one, as it removes tolerarch.
        let chart = scenarios![chart::chart_is_installed_upgraded_and_removed_as_documented];
        all.extend(trials(chart, LONG));
    }
    if Cluster::is_external() {
        return all;
    }
    all.extend(trials(here(), LIMIT));
    if ClusterAutoscaler::is_available() {
        all.extend(trials(with_cluster_autoscaler(), LIMIT));
    } else {
        eprintln!(
            "those of the cluster-autoscaler are left out: E2E_CLUSTER_AUTOSCALER names none for this Kubernetes"
        );
    }
    all.extend(peer_trials());
    for controller in WorkloadController::ALL {
        match controller.missing() {
            None => all.extend(trials(of_workloads(controller), LIMIT)),
            Some(why) => eprintln!("those with {} are left out: {why}", controller.name()),
        }
    }
    if is_optimized() {
        all.extend(trials(measuring(), LIMIT));
    } else {
        eprintln!("those that measure are ignored: E2E_TOLERARCH names no release build");
        all.extend(ignored(measuring()));
    }
    all.extend(ignored(scenarios![
        at_scale::ten_thousand_pods_are_repaired
    ]));
    all
}

/// The scenarios with other tools whose sources are available.
fn peer_trials() -> Vec<Trial> {
    let mut peers = Vec::new();
    for tool in Tool::ALL {
        peers.push((tool.name(), tool.missing(), beside(tool)));
    }
    let controller = scenarios![peers::pods_end_as_documented_beside_archaware_controller];
    peers.push((Archaware::NAME, Archaware::missing(), controller));
    let mut all = Vec::new();
    for (name, missing, scenarios) in peers {
        match missing {
            None => all.extend(trials(scenarios, LIMIT)),
            Some(why) => eprintln!("those beside {name} are left out: {why}"),
        }
    }
    all
}

/// Keeps the scenarios of [`LANDING`].
fn landing(mut all: Vec<Trial>) -> Vec<Trial> {
    all.retain(|trial| LANDING.contains(&trial.name()));
    assert!(
        all.len() == LANDING.len() || Cluster::is_external(),
        "{SCENARIOS}: a name of no scenario"
    );
    all
}

/// Scenarios that run on any cluster where tolerarch is installed.
fn anywhere() -> Vec<Scenario> {
    scenarios![
        manifests::pods_of_the_manifests_are_created_unchanged,
        placement::multi_arch_deployment_runs_in_pool_if_plain_node_is_full,
        placement::single_arch_pods_stay_out_of_the_pool,
        placement::every_image_of_a_pod_counts,
        placement::image_by_digest_gets_the_toleration,
        placement::image_volumes_are_checked,
        placement::every_kind_of_workload_gets_the_toleration,
        placement::user_tolerations_stay,
        opt_outs::skipped_pods_stay_unchanged,
        opt_outs::daemon_set_pods_stay_unchanged,
        opt_outs::pods_of_opted_out_namespaces_stay_unchanged,
        shapes::dry_run_equals_the_stored_pod,
        shapes::repeated_server_side_apply_changes_nothing,
        shapes::webhook_causes_no_rejection_of_generated_pods,
        shapes::webhook_causes_no_rejection_of_the_largest_pods,
    ]
}

/// Scenarios that need kubelets, and a cluster that nothing else uses.
fn on_real_nodes() -> Vec<Scenario> {
    scenarios![
        // The first one: doctor also reports the registries that refuse the others.
        nodes::doctor_finds_no_fault,
        breakages::doctor_names_the_fault_of_a_broken_installation,
        nodes::pods_run_only_where_their_images_run,
        nodes::events_name_containers_that_fail_on_a_wrong_node,
        broken_nodes::broken_node_program_is_not_blamed_on_an_image,
        nodes::pull_secrets_work_for_kubelet_and_webhook_alike,
        nodes::rollout_spreads_the_replicas_without_warnings,
        nodes::pods_are_created_while_replicas_and_nodes_are_replaced,
        nodes::dead_node_delays_few_pods_and_fails_none,
        outages::hanging_replica_delays_few_pods_and_fails_none,
        outages::pods_are_created_while_replicas_run_out_of_memory,
    ]
}

/// Scenarios that need a node for arm64.
fn on_two_architectures() -> Vec<Scenario> {
    scenarios![
        architectures::pods_run_on_all_architectures_of_their_images,
        broken_nodes::broken_arm64_node_program_is_not_blamed_on_an_image,
        architectures::arm64_replica_decides_for_all_pods,
    ]
}

/// Scenarios that need kubelets and wait for minutes.
fn slow_on_real_nodes() -> Vec<Scenario> {
    scenarios![
        outages::changed_configuration_arrives_through_the_volume,
        outages::pods_are_created_while_the_disk_of_a_node_is_full,
    ]
}

/// Returns trials that run with `--ignored` only: they take minutes, or need a release build.
fn ignored(scenarios: Vec<Scenario>) -> impl Iterator<Item = Trial> {
    trials(scenarios, LONG).map(|trial| trial.with_ignored_flag(true))
}

/// Scenarios that print measurements, which are meaningful for a release build only.
fn measuring() -> Vec<Scenario> {
    scenarios![
        load::no_creation_fails_or_waits_while_everything_restarts,
        scale_up::warm_deployment_is_bound_about_as_fast_as_without_webhook,
    ]
}

/// Scenarios with the cluster-autoscaler.
fn with_cluster_autoscaler() -> Vec<Scenario> {
    scenarios![
        cluster_autoscaler::nodes_are_created_in_the_group_that_the_images_allow,
        cluster_autoscaler::none_of_two_hundred_pods_runs_on_a_wrong_architecture,
        cluster_autoscaler::preferences_choose_nodes_but_no_group,
        cluster_autoscaler::required_architecture_chooses_the_group_of_unknown_images,
        cluster_autoscaler::priorities_count_only_if_valid_and_if_a_group_matches,
        cluster_autoscaler_doctor::doctor_names_what_is_missing_to_fill_the_pool,
        cluster_autoscaler_doctor::documented_commands_bring_pods_to_the_pool,
        selection::cluster_autoscaler_needs_no_priorities_for_selecting_pods,
        cluster_autoscaler::groups_of_one_architecture_are_balanced_despite_taints,
        cluster_autoscaler::pool_taint_must_not_be_a_startup_taint,
        podtemplates::cluster_autoscaler_prepares_nodes_for_buffers,
        podtemplates::cluster_autoscaler_prepares_nodes_for_requests,
        cluster_autoscaler_nodes::nodes_are_created_for_repaired_pods,
        cluster_autoscaler_nodes::pods_run_on_plain_nodes_while_the_pool_is_at_its_maximum,
        cluster_autoscaler_nodes::pods_run_on_plain_nodes_while_the_pool_cannot_grow,
        cluster_autoscaler_nodes::pods_run_on_plain_nodes_if_pool_machines_never_get_ready,
        cluster_autoscaler_nodes::nodes_are_removed_if_their_pods_fit_elsewhere,
        cluster_autoscaler_nodes::discovered_pools_follow_created_and_removed_nodes,
    ]
}

/// Scenarios with the webhook of another tool.
fn beside(tool: Tool) -> Vec<Scenario> {
    match tool {
        Tool::K8smultiarcher => scenarios![peers::pods_end_the_same_beside_k8smultiarcher],
        Tool::K8smultiarcherFork => {
            scenarios![peers::pods_end_the_same_beside_the_fork_of_k8smultiarcher]
        }
        Tool::Noe => scenarios![peers::pods_end_the_same_beside_noe],
        Tool::Archy => scenarios![peers::pods_end_the_same_beside_archy],
    }
}

/// Scenarios with the controller of another kind of workloads.
fn of_workloads(controller: WorkloadController) -> Vec<Scenario> {
    match controller {
        WorkloadController::JobSet => scenarios![workloads::pods_of_job_sets_are_decided_once],
        WorkloadController::LeaderWorkerSet => {
            scenarios![workloads::pods_of_leader_worker_sets_are_decided_once]
        }
        WorkloadController::Rollouts => {
            scenarios![workloads::rollouts_progress_and_each_revision_is_decided]
        }
        WorkloadController::Kueue => scenarios![
            workloads::jobs_get_the_tolerations_of_flavour_and_pool,
            workloads::flavour_with_the_taint_takes_pods_that_tolerate_it,
            workloads::flavours_without_the_taint_take_every_job,
        ],
    }
}

/// Scenarios that break something, or need what only this machine has.
fn here() -> Vec<Scenario> {
    scenarios![
        manifests::api_server_accepts_the_chart_with_every_value_file,
        manifests::replicas_run_on_different_nodes_without_zones,
        opt_outs::api_server_does_not_call_for_opted_out_pods,
        opt_outs::match_conditions_prevent_calls_for_all_skipped_pods,
        reinvocation::single_arch_sidecar_removes_the_toleration,
        reinvocation::multi_arch_sidecar_keeps_the_toleration,
        reinvocation::tolerations_of_another_webhook_stay,
        faults::pods_are_created_while_the_webhook_is_down,
        faults::hanging_webhook_delays_pods_at_most_by_its_timeout,
        faults::pods_are_created_if_the_webhook_certificate_is_wrong,
        faults::pods_are_created_if_the_webhook_answers_garbage,
        faults::toleration_whitelist_without_the_pool_rejects_pods,
        registries::pods_stay_unchanged_while_the_registry_is_down,
        registries::hanging_registry_costs_at_most_the_budget,
        registries::pods_stay_unchanged_while_the_registry_throttles,
        registries::pods_stay_unchanged_while_the_registry_fails,
        registries::pods_stay_unchanged_while_the_registry_is_untrusted,
        real_images::pods_get_the_toleration_for_images_of_real_registries,
        node_affinity::pods_avoid_architectures_that_their_images_lack,
        node_affinity::pods_run_on_the_preferred_architecture,
        node_affinity::user_constraints_stay_valid,
        selection::pods_get_selector_and_tolerations_or_neither,
        selection::single_arch_sidecar_removes_selector_and_tolerations,
        selection::event_says_that_an_existing_pod_gets_no_selector,
        daemonsets::daemon_sets_run_in_the_pool_without_extra_rollouts,
        daemonsets::fields_applied_by_the_owner_of_a_daemon_set_stay,
        daemonsets::managed_fields_of_a_daemon_set_survive_partial_updates,
        podtemplates::pod_templates_get_the_tolerations_of_their_pods,
        certificates::managed_certificates_are_replaced_without_a_failed_call,
        certificates::managed_certificates_rotate_without_a_failed_call,
        certificates::damaged_managed_certificates_are_replaced,
        certificates::older_release_is_called_until_it_is_replaced,
        controller::pods_are_repaired_when_their_registry_returns,
        controller::refused_repair_is_given_up_and_other_pods_are_repaired,
        controller::standby_controller_takes_over_after_a_kill,
        controller::events_say_what_is_wrong_with_images_of_pods,
        failed_images::failed_image_is_kept_away_and_tenants_affect_no_others,
        churn::only_owner_that_deletes_its_pods_is_recorded,
        tenants::large_and_deep_pods_do_not_affect_other_pods,
        monitoring::alerts_fire_while_tolerarch_is_not_called,
        monitoring::every_panel_of_the_dashboard_shows_something,
        doctor::doctor_accepts_a_sound_installation_and_names_faults,
        doctor_pre::doctor_names_first_what_keeps_the_first_node_away,
        doctor_pre_admission::doctor_names_admission_faults_before_a_node_exists,
        documentation::every_documented_command_works,
        report::report_and_why_cover_two_thousand_pods,
        karpenter::nodes_are_created_in_the_pool_that_the_images_allow,
        karpenter::nodes_are_removed_with_their_pods_and_created_again,
        karpenter::pods_run_on_amd64_if_the_preferred_arm64_is_out_of_stock,
        selection::karpenter_creates_the_nodes_that_pods_select,
        podtemplates::karpenter_prepares_nodes_in_the_pool_of_the_template,
        controller::karpenter_creates_nodes_for_repaired_pods,
        node_taints::only_configured_node_taints_are_set_and_removed,
        discovery::discovered_pools_follow_the_node_pools,
        discovery::next_node_comes_from_the_predicted_node_pool,
    ]
}
