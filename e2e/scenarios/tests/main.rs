//! What users expect of tolerarch, on a real control plane. `e2e/README.md` says how to run it.
//!
//! The scenarios run one after the other, each in a namespace of its own: they measure, and two of them would share
//! what the API server counts.

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
mod steering;
mod tenants;
mod workloads;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use scenarios::{
    Archaware, Cluster, ClusterAutoscaler, Kind, Tool, WorkloadController, is_optimized, soon,
};

use self::run::{LIMIT, LONG, Scenario, conclude, trials};

/// Says which scenarios are run: `landing`, or `all`.
const SCENARIOS: &str = "E2E_SCENARIOS";

/// What is run for every change: the main job, from end to end, by those that find most for the time they take.
const LANDING: [&str; 19] = [
    // Pods get the toleration and run in the pool, or neither, whoever creates them.
    "placement::a_multi_arch_deployment_runs_in_the_pool_when_the_plain_node_is_full",
    "placement::pods_that_do_not_run_everywhere_stay_out_of_the_pool",
    "placement::every_image_of_a_pod_counts",
    "placement::every_kind_of_workload_gets_its_toleration",
    "opt_outs::the_api_server_does_not_even_call_for_them",
    "opt_outs::with_conditions_the_api_server_does_not_call_for_any_of_them",
    "reinvocation::a_sidecar_for_one_architecture_takes_the_toleration_back",
    "daemonsets::daemon_sets_run_in_the_pool_and_are_not_rolled_out_by_themselves",
    // No Pod is rejected or held up.
    "shapes::no_generated_pod_is_rejected_because_of_the_webhook",
    "faults::a_webhook_that_was_killed_holds_up_no_pod",
    "registries::a_registry_that_is_gone_leaves_pods_unchanged_until_it_is_back",
    // What is installed, what its rights allow, and what its documentation says.
    "manifests::the_deployment_gets_its_pods",
    "manifests::the_api_server_accepts_what_every_value_file_renders",
    "certificates::managed_certificates_are_issued_and_replaced_without_one_failed_call",
    "controller::pods_are_repaired_when_their_registry_is_back",
    "failed_images::what_failed_on_an_architecture_is_kept_from_it_and_no_tenant_closes_what_others_run",
    "doctor::doctor_proves_a_right_installation_and_names_what_is_broken",
    "documentation::every_command_for_a_cluster_works",
    // The right machine is bought.
    "karpenter::nodes_appear_in_the_pool_that_the_images_allow",
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
        let chart =
            scenarios![chart::the_chart_is_installed_upgraded_and_taken_away_as_the_docs_print_it];
        all.extend(trials(chart, LONG));
    }
    if !Cluster::is_external() {
        all.extend(trials(here(), LIMIT));
        if ClusterAutoscaler::is_available() {
            all.extend(trials(with_cluster_autoscaler(), LIMIT));
        } else {
            eprintln!(
                "those of the cluster-autoscaler are left out: E2E_CLUSTER_AUTOSCALER names none for this Kubernetes"
            );
        }
        let tools = Tool::ALL.into_iter();
        let mut peers: Vec<_> = tools
            .map(|tool| (tool.name(), tool.missing(), beside(tool)))
            .collect();
        let controller = scenarios![peers::pods_end_as_documented_beside_archaware_controller];
        peers.push((Archaware::NAME, Archaware::missing(), controller));
        for (name, missing, scenarios) in peers {
            match missing {
                None => all.extend(trials(scenarios, LIMIT)),
                Some(why) => eprintln!("those beside {name} are left out: {why}"),
            }
        }
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
    }
    match std::env::var(SCENARIOS).as_deref() {
        Ok("landing") => all = landing(all),
        Ok("all" | "") | Err(_) => {}
        Ok(other) => panic!("{SCENARIOS}: {other} is neither landing nor all"),
    }
    let conclusion = libtest_mimic::run(&arguments, all);
    conclude(conclusion.has_failed());
    conclusion.exit_code()
}

/// Those of the landing set.
fn landing(mut all: Vec<Trial>) -> Vec<Trial> {
    all.retain(|one| LANDING.contains(&one.name()));
    assert!(
        all.len() == LANDING.len() || Cluster::is_external(),
        "{SCENARIOS}: a name of no scenario"
    );
    all
}

/// Scenarios for every cluster where tolerarch is installed.
fn anywhere() -> Vec<Scenario> {
    scenarios![
        manifests::the_deployment_gets_its_pods,
        placement::a_multi_arch_deployment_runs_in_the_pool_when_the_plain_node_is_full,
        placement::pods_that_do_not_run_everywhere_stay_out_of_the_pool,
        placement::every_image_of_a_pod_counts,
        placement::digests_are_as_good_as_tags,
        placement::image_volumes_count,
        placement::every_kind_of_workload_gets_its_toleration,
        placement::tolerations_of_users_stay,
        opt_outs::pods_that_are_skipped_stay_as_they_are,
        opt_outs::pods_of_daemon_sets_stay_as_they_are,
        opt_outs::pods_of_opted_out_namespaces_stay_as_they_are,
        shapes::a_dry_run_shows_what_would_be_stored,
        shapes::server_side_apply_settles,
        shapes::no_generated_pod_is_rejected_because_of_the_webhook,
        shapes::no_pod_as_large_as_etcd_takes_is_rejected_because_of_the_webhook,
    ]
}

/// Scenarios that need kubelets, and a cluster that is there for them alone.
fn on_real_nodes() -> Vec<Scenario> {
    scenarios![
        // Before the others: it tells of their registries that refuse, too.
        nodes::doctor_is_content,
        breakages::doctor_names_what_was_broken_by_hand,
        nodes::pods_run_where_their_images_do,
        nodes::what_dies_on_a_wrong_node_is_told_by_events,
        broken_nodes::a_program_of_the_node_that_fails_is_blamed_on_no_image,
        nodes::pull_secrets_count_for_the_kubelet_and_for_the_webhook_alike,
        nodes::a_rollout_spreads_the_replicas_and_leaves_no_warning,
        nodes::creations_go_on_while_replicas_and_nodes_are_replaced,
        nodes::a_node_that_dies_holds_up_a_pod_or_two_and_fails_none,
        outages::a_replica_that_hangs_holds_up_a_pod_or_two_for_the_timeout_and_fails_none,
        outages::creations_go_on_while_replicas_run_out_of_half_of_their_memory,
    ]
}

fn on_two_architectures() -> Vec<Scenario> {
    scenarios![
        architectures::pods_run_on_every_architecture_that_their_images_have,
        broken_nodes::nor_is_one_of_a_node_for_arm64,
        architectures::a_replica_for_arm64_decides_for_all_pods,
    ]
}

fn slow_on_real_nodes() -> Vec<Scenario> {
    scenarios![
        outages::a_changed_configuration_arrives_by_the_volume,
        outages::creations_go_on_while_the_disk_of_a_node_is_full,
    ]
}

/// Those that take minutes or need a release build, and are run by `--ignored` only.
fn ignored(scenarios: Vec<Scenario>) -> impl Iterator<Item = Trial> {
    trials(scenarios, LONG).map(|trial| trial.with_ignored_flag(true))
}

/// Scenarios whose numbers are printed, and mean something of a release build only.
fn measuring() -> Vec<Scenario> {
    scenarios![
        load::no_creation_fails_or_waits_while_everything_is_restarted,
        scale_up::a_warm_deployment_is_bound_about_as_fast_as_without_webhook,
    ]
}

/// Scenarios with the cluster-autoscaler, whose source has to be named.
fn with_cluster_autoscaler() -> Vec<Scenario> {
    scenarios![
        cluster_autoscaler::nodes_appear_in_the_group_that_the_images_allow,
        cluster_autoscaler::none_of_two_hundred_pods_comes_to_a_wrong_architecture,
        cluster_autoscaler::preferences_choose_nodes_and_no_group,
        cluster_autoscaler::what_is_required_chooses_the_group_of_an_unknown_image,
        cluster_autoscaler::priorities_filter_only_if_they_can_be_read_and_name_a_group_that_fits,
        cluster_autoscaler_doctor::doctor_names_what_brings_pods_to_the_pool,
        cluster_autoscaler_doctor::the_documentation_brings_pods_to_the_pool,
        selection::the_cluster_autoscaler_needs_no_priorities_for_pods_that_select,
        cluster_autoscaler::groups_of_one_architecture_are_balanced_whatever_their_taints,
        cluster_autoscaler::the_taint_of_the_pool_is_no_startup_taint,
        podtemplates::the_cluster_autoscaler_prepares_nodes_for_buffers,
        podtemplates::the_cluster_autoscaler_prepares_nodes_for_requests,
        cluster_autoscaler_nodes::nodes_come_for_repaired_pods,
        cluster_autoscaler_nodes::pods_come_to_plain_nodes_while_the_pool_is_at_its_maximum,
        cluster_autoscaler_nodes::pods_come_to_plain_nodes_while_the_pool_cannot_grow,
        cluster_autoscaler_nodes::pods_come_to_plain_nodes_after_machines_that_never_become_ready,
        cluster_autoscaler_nodes::nodes_go_whose_pods_can_go_elsewhere,
        cluster_autoscaler_nodes::pools_follow_the_nodes_that_come_and_go,
    ]
}

/// Scenarios with the webhook of another tool, whose source has to be there.
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

/// Scenarios with the controller of another kind of workloads, which has to be built.
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
            workloads::jobs_get_the_tolerations_of_their_flavour_and_of_the_pool,
            workloads::a_flavour_with_the_taint_takes_what_tolerates_it,
            workloads::other_flavours_of_the_pool_take_every_job,
        ],
    }
}

/// Scenarios that break things, or count what the API server does.
fn here() -> Vec<Scenario> {
    scenarios![
        manifests::the_api_server_accepts_what_every_value_file_renders,
        manifests::replicas_run_on_different_nodes_where_there_are_no_zones,
        opt_outs::the_api_server_does_not_even_call_for_them,
        opt_outs::with_conditions_the_api_server_does_not_call_for_any_of_them,
        reinvocation::a_sidecar_for_one_architecture_takes_the_toleration_back,
        reinvocation::a_multi_arch_sidecar_leaves_it,
        reinvocation::tolerations_of_another_webhook_stay,
        faults::a_webhook_that_was_killed_holds_up_no_pod,
        faults::a_webhook_that_hangs_holds_up_pods_until_its_timeout_at_most,
        faults::a_webhook_with_a_wrong_certificate_holds_up_no_pod,
        faults::a_webhook_that_answers_rubbish_holds_up_no_pod,
        faults::a_white_list_of_tolerations_without_ours_rejects_the_pod_unless_it_is_opted_out,
        registries::a_registry_that_is_gone_leaves_pods_unchanged_until_it_is_back,
        registries::a_registry_that_hangs_costs_no_more_than_the_budget,
        registries::a_registry_that_throttles_leaves_pods_unchanged_until_it_does_no_more,
        registries::a_registry_that_fails_leaves_pods_unchanged_until_it_heals,
        registries::a_registry_with_a_wrong_certificate_leaves_pods_unchanged_until_it_has_a_right_one,
        real_images::images_of_real_registries_are_tolerated,
        steering::pods_stay_off_the_architectures_that_their_images_lack,
        steering::pods_prefer_an_architecture_where_both_have_room,
        steering::constraints_of_users_stay_valid,
        selection::a_pod_gets_selector_and_tolerations_or_neither,
        selection::a_sidecar_for_one_architecture_takes_both_back,
        selection::a_pod_that_exists_is_told_that_it_is_too_late,
        daemonsets::daemon_sets_run_in_the_pool_and_are_not_rolled_out_by_themselves,
        daemonsets::what_the_owner_of_a_daemon_set_applies_is_never_taken_away,
        daemonsets::what_is_managed_in_a_daemon_set_survives_those_who_drop_half_of_it,
        podtemplates::pod_templates_get_what_their_pods_would_get,
        certificates::managed_certificates_are_issued_and_replaced_without_one_failed_call,
        certificates::managed_certificates_rotate_without_one_failed_call,
        certificates::managed_certificates_come_back_when_they_are_damaged,
        certificates::an_older_release_is_called_until_it_is_replaced,
        controller::pods_are_repaired_when_their_registry_is_back,
        controller::a_repair_that_pod_toleration_restriction_refuses_is_given_up_and_hurts_no_other,
        controller::another_controller_takes_over_from_one_that_was_killed,
        controller::pods_show_by_events_what_is_wrong_with_their_images,
        failed_images::what_failed_on_an_architecture_is_kept_from_it_and_no_tenant_closes_what_others_run,
        churn::only_an_operator_that_deletes_its_pods_is_recorded,
        tenants::pods_of_any_size_and_depth_stop_nothing_for_others,
        monitoring::alerts_fire_while_the_api_server_goes_on_without_tolerarch,
        monitoring::every_panel_of_the_dashboard_shows_something,
        doctor::doctor_proves_a_right_installation_and_names_what_is_broken,
        doctor_pre::what_keeps_the_first_node_away_is_named_first,
        doctor_pre_admission::doctor_names_what_refuses_pods_before_a_node_comes,
        documentation::every_command_for_a_cluster_works,
        report::two_thousand_pods_are_added_up_and_explained,
        karpenter::nodes_appear_in_the_pool_that_the_images_allow,
        karpenter::nodes_go_with_their_pods_and_come_again,
        karpenter::a_preference_stays_a_preference,
        selection::karpenter_makes_the_nodes_that_pods_select,
        podtemplates::karpenter_prepares_nodes_in_the_pool_of_the_template,
        controller::karpenter_makes_nodes_for_repaired_pods,
        node_taints::nodes_get_their_taints_and_lose_only_these,
        discovery::pools_follow_the_node_pools,
        discovery::the_next_node_comes_from_where_it_was_predicted,
    ]
}
