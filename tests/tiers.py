"""Chooses the tests of `make test`, with the mark `quick`: all that start no stack of processes,
and the stories.

A file is named by its path below tests/, a file of the lab by its path from the top: lab/tests/.

A story is a test that tells one behaviour on a real stack; of a parametrised test it is the first
case. Long tests are left out, or run their first case, and what a second server program repeats.
`make test-all` runs everything.
"""

import shutil
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Final

import pytest

from tests.kit.rabbit import rabbitmq_program
from tests.parity import works_with

STORIES: Final[Mapping[str, tuple[str, ...]]] = {
    "system/cancel/test_celery_events.py": (
        "test_a_task_is_sent_received_started_and_succeeded",
        "test_a_failure_and_a_retry_are_events_as_well",
        "test_a_waiting_task_that_is_revoked_never_runs",
        "test_a_running_task_is_killed_when_revoked_with_terminate",
        "test_a_chord_whose_task_is_revoked_or_dead_fails_and_does_not_wait_for_ever",
    ),
    "system/run/test_celery_tasks.py": (
        "test_a_task_without_options_goes_to_the_broker_and_one_with_them_to_parsync",
        "test_a_retry_waits_in_the_queue_and_is_the_same_tasks_next_attempt",
        "test_a_task_can_be_replaced_by_another",
        "test_chains_groups_and_chords_nest",
        "test_links_and_errbacks_are_called",
        "test_a_user_chosen_id_is_a_single_task_however_often_it_is_sent",
        "test_serializers_and_compression_are_celerys",
        "test_a_hard_time_limit_fails_the_task_and_frees_its_slot",
        "test_a_task_whose_process_is_killed_runs_again",
        "test_an_invalid_or_infeasible_option_is_refused_at_the_call_and_leaves_no_trace",
        "test_a_tenant_is_inherited_in_every_way_in_which_a_task_submits",
        "test_a_declared_limit_has_the_argument_of_each_call_and_its_retries",
        "test_limits_are_kept_by_a_retry_and_not_inherited",
    ),
    "system/run/test_celery_worker.py": (
        "test_a_task_goes_to_the_better_node_and_holds_the_slots_and_amounts_that_it_needs",
        "test_a_warm_shutdown_finishes_its_runs_and_gives_unstarted_tasks_to_other_workers",
    ),
    "system/damage/test_damage.py": (
        "test_damage_is_noticed_and_rebuilt",
        "test_each_kind_of_key_is_in_the_table",
    ),
    "system/dev/test_demo.py": ("test_ctrl_c_leaves_no_process_behind",),
    "system/dev/test_dev.py": ("test_the_last_line_is_true_and_an_ended_process_is_reported",),
    "system/place/test_devices.py": ("test_runs_at_the_same_time_have_devices_of_their_own",),
    "system/monitor/test_events.py": (
        "test_the_events_command_prints_one_line_for_each_event",
        "test_a_viewer_gets_new_events_and_goes_on_behind_the_last_seen_event",
    ),
    "system/explain/test_explain.py": (
        "test_a_waiting_task_names_the_nearest_node_what_it_lacks_the_holder_and_its_end",
        "test_a_plan_says_now_waits_or_never_and_submits_nothing",
    ),
    "system/place/test_fleet.py": (
        "test_two_apps_share_a_cluster_and_each_task_runs_where_its_name_is_known",
        "test_a_task_that_is_routed_goes_only_to_nodes_that_consume_its_queue",
        "test_the_declarations_of_an_app_hold_for_every_submit_by_name",
        "test_a_task_that_waits_for_its_rate_limit_holds_no_slot",
    ),
    "system/lose_a_node/test_isolation.py": (
        "test_a_run_that_was_paused_past_its_lease_does_not_tick_again",
    ),
    "system/submit/test_loader.py": (
        "test_an_unmodified_app_is_placed_by_its_clients_and_run_by_its_workers",
    ),
    "system/place/test_look_ahead_workers.py": (
        "test_a_waiting_task_is_cancelled_while_another_task_runs",
    ),
    "system/cancel/test_recovery.py": (
        "test_a_dead_task_tells_its_history_and_runs_again_when_it_is_requeued",
        "test_a_task_that_waits_past_its_expiry_is_revoked",
    ),
    "system/serve/test_serve.py": (
        "test_the_service_is_healthy_and_reports_whether_tasks_can_be_placed",
    ),
    "system/serve/test_serve_api.py": (
        "test_a_list_is_what_the_command_lists",
        "test_pages_and_filters",
    ),
    "system/serve/test_serve_doors.py": (
        "test_a_task_is_submitted_once_and_only_its_submitter_finds_it",
    ),
    "system/serve/test_serve_metrics.py": ("test_the_metrics_equal_the_state",),
    "system/serve/test_serve_openapi.py": (
        "test_the_openapi_document_is_valid_and_has_every_route",
    ),
    "system/serve/test_serve_pages.py": ("test_each_view_shows_the_cluster_without_a_complaint",),
    "system/lose_a_node/test_standstill.py": (
        "test_a_stopped_worker_keeps_its_runs_and_gets_no_new_task",
    ),
    "system/lose_a_node/test_takeover.py": (
        "test_a_worker_and_the_leader_killed_at_once_cost_no_task",
    ),
    "system/monitor/test_watching.py": ("test_every_line_of_the_log_is_json_with_its_fields",),
    "store/acl/test_stack.py": (
        "test_clients_submit_wait_cancel_and_look",
        "test_a_web_application_sends_placed_and_plain_tasks_and_waits_for_results",
        "test_the_viewers_commands_list_everything_under_way",
        "test_a_stack_that_stops_was_denied_nothing",
    ),
    "system/redis_cluster/test_whole.py": (
        "test_tasks_run_on_a_cluster_through_the_death_of_a_primary",
    ),
    "system/place/test_schedulers.py": ("test_schedulers_join_and_leave_while_tasks_flow",),
    "system/lose_a_server/test_absent.py": (
        "test_a_node_waits_for_its_server_and_for_its_cluster",
    ),
    "system/lose_a_broker/test_lost_broker.py": ("test_outages_of_the_broker_cost_no_start",),
    "system/lose_a_server/test_refusing_stack.py": (
        "test_a_refusal_ends_no_process_costs_no_start_and_loses_no_result",
    ),
    "system/lose_a_server/test_sentinel.py": (
        "test_a_worker_whose_broker_is_behind_sentinels_is_a_node_and_goes_on",
    ),
    "system/deploy/test_wheel.py": (
        "test_the_wheel_holds_the_package_its_scripts_and_its_licence",
        "test_the_lab_has_a_wheel_of_its_own",
    ),
    "system/security/test_broker_tls.py": (
        "test_worker_guard_and_scheduler_beside_it_have_the_apps_tls",
    ),
    "docs/test_pages.py": ("test_the_python_blocks_run_and_print_the_output_in_their_comments",),
    "system/dev/test_plugin.py": ("test_a_project_tests_its_tasks_on_a_cluster_and_eagerly",),
}
"""The tests of each file with a stack that `make test` runs: each tells one behaviour."""

NO_STORY: Final[Mapping[str, str]] = {
    "system/place/test_backfill.py": "store/lua/test_backfill.py covers it without a stack",
    "system/place/test_black_holes.py": "unit/test_black_holes.py covers it without a stack",
    "system/lose_a_broker/test_full_broker.py": "system/lose_a_server/test_full_memory.py tells full memory without a stack",
    "system/damage/test_garbage.py": "system/damage/test_damage.py covers it",
    "docs/test_inspect.py": "system/cancel/test_celery_events.py covers it",
    "system/place/test_kept_back.py": "unit/test_kept_back.py covers it without a stack",
    "system/deploy/test_prometheus.py": "system/serve/test_serve_metrics.py covers it",
    "system/dev/test_models_example.py": "unit/test_models_example.py covers it without a stack",
    "system/damage/test_quarantine.py": "system/damage/test_damage.py covers it",
    "system/place/test_shards.py": "system/redis_cluster/test_whole.py covers it",
    "system/lose_a_node/test_short_lease.py": "system/lose_a_node/test_standstill.py covers it",
    "system/lose_a_node/test_storms.py": "system/lose_a_node/test_takeover.py covers it",
    "system/run/test_task_ends.py": "system/run/test_celery_tasks.py covers it",
    "system/explain/test_silence.py": "its tests go on from each other; system/explain/test_explain.py covers it",
    "store/acl/test_cluster.py": "store/acl/test_stack.py and system/redis_cluster/test_whole.py cover it",
    "docs/test_api.py": "docs/test_pages.py covers it",
    "lab/tests/bench/test_family.py": "measures",
    "lab/tests/bench/test_placement.py": "measures",
    "lab/tests/bench/test_queue_bars.py": "measures",
    "lab/tests/bench/test_serve.py": "measures",
    "chaos/real/test_storm.py": "all behaviours under faults at once",
    "system/redis_cluster/test_serve.py": "system/serve/test_serve.py and system/redis_cluster/test_whole.py cover it",
    "system/place/test_priority.py": "system/place/test_schedulers.py covers it",
    "system/lose_a_broker/test_rabbitmq.py": "needs a program that few have; system/lose_a_server/test_absent.py covers it for Redis",
    "parity/test_prefork.py": "system/run/test_celery_tasks.py covers it; .ci/older-celery runs a short form",
    "parity/test_threads.py": "system/run/test_celery_tasks.py covers it",
    "parity/works_with/test_works_with.py": "needs libraries that few have; .ci/works-with runs it",
}
"""Files that start a stack and have no test in STORIES, and the reason: the file that covers the behaviour, or why the file needs no story."""

LONG: Final[Mapping[str, tuple[str, ...]]] = {
    "store/acl/test_client_damage.py": ("test_no_right_of_a_client_halts_the_cluster",),
    "lab/tests/bench/test_cost.py": (
        "test_a_larger_call_costs_fewer_instructions_a_task_and_more_shards_cost_more",
        "test_no_verb_became_a_tenth_dearer",
    ),
    "chaos/test_layer1.py": (
        "test_promises_1_to_9_hold_in_every_schedule_of_a_fixed_list_of_seeds",
        "test_promises_1_to_9_hold_on_several_primaries_that_go_away_restart_lose_writes_and_move_slots",
    ),
    "chaos/test_mutants.py": (
        "test_a_bug_that_names_a_test_makes_it_fail",
        "test_a_bug_can_be_planted_and_leaves_scripts_that_compile",
        "test_the_tests_that_bugs_name_pass_without_them",
    ),
    "system/redis_cluster/test_failures.py": (
        "test_the_doctor_tells_the_shards_of_the_settings_primary_while_it_is_away",
    ),
    "store/lua/test_devices.py": (
        "test_ten_thousand_tasks_with_kills_never_share_a_device_too_much_and_leak_nothing",
    ),
    "store/lua/test_long_texts.py": (
        "test_no_stored_value_makes_a_script_slow",
        "test_no_argument_makes_a_script_slow",
    ),
    "store/lua/test_many_lost.py": ("test_ten_times_the_nodes_take_hardly_more_round_trips",),
    "store/lua/test_patterns.py": ("test_patterns_that_take_quadratic_time_are_noticed",),
    "lab/tests/simulate/test_backfill.py": (
        "test_a_large_task_beside_a_stream_of_small_ones_starts_soon",
        "test_many_large_tasks_of_one_kind_do_not_wait_for_each_other",
        "test_without_bookings_it_starves",
    ),
    "lab/tests/simulate/test_experiments.py": (
        "test_the_claims_that_need_no_large_cluster_hold_in_small",
        "test_an_experiment_has_the_cases_that_were_asked_for",
        "test_the_same_seed_gives_the_same_result_and_another_seed_another",
        "test_runs_that_are_compared_have_the_same_nodes_and_the_same_arrivals",
    ),
    "lab/tests/simulate/test_replay.py": (
        "test_a_real_server_makes_the_same_decisions_and_keeps_nothing",
    ),
}
"""Tests without a stack that are left to `make test-all` for what they cost."""

FIRST: Final[Mapping[str, tuple[str, ...]]] = {
    "chaos/test_layer1.py": ("test_a_planted_bug_is_found",),
    "store/lua/test_soundness.py": ("test_pieces_tell_each_damage_as_the_whole_does",),
    "store/model/test_reference.py": ("test_the_scripts_behave_like_the_reference_store",),
    "store/model/test_rules.py": ("test_a_rule_in_lua_says_the_same",),
    "lab/tests/simulate/test_experiments.py": (
        "test_every_plot_can_be_drawn",
        "test_series_have_each_second_and_group",
    ),
}
"""Tests without a stack of which `make test` runs the first case on a real server only."""

ON_REDIS_CLUSTER: Final = (
    "docs/test_inspect.py",
    "docs/test_journey.py",
    "system/cancel/",
    "system/damage/test_damage.py",
    "system/damage/test_garbage.py",
    "system/damage/test_quarantine.py",
    "system/deploy/test_prometheus.py",
    "system/dev/test_demo.py",
    "system/dev/test_dev.py",
    "system/dev/test_embedded.py",
    "system/explain/test_cli.py",
    "system/explain/test_explain.py",
    "system/explain/test_silence.py",
    "system/lose_a_broker/test_full_broker.py",
    "system/lose_a_node/test_isolation.py",
    "system/lose_a_node/test_short_lease.py",
    "system/lose_a_node/test_standstill.py",
    "system/lose_a_node/test_storms.py",
    "system/lose_a_node/test_takeover.py",
    "system/monitor/test_events.py",
    "system/monitor/test_watching.py",
    "system/place/test_backfill.py",
    "system/place/test_black_holes.py",
    "system/place/test_devices.py",
    "system/place/test_fleet.py",
    "system/place/test_kept_back.py",
    "system/place/test_look_ahead_workers.py",
    "system/place/test_shards.py",
    "system/redis_cluster/",
    "system/run/test_celery_tasks.py",
    "system/run/test_celery_worker.py",
    "system/run/test_task_ends.py",
    "system/serve/",
    "system/submit/test_client.py",
    "system/submit/test_loader.py",
)
"""The files and whole folders that `make cluster-test` runs with the state on a Redis Cluster."""

FAKE: Final = "fakeredis"
"""The name that `server_kind` gives to tests on fakeredis."""

ONE: Final = ("one_server", "dealt")
"""Marks of tests that run on one server program.

`one_server`: the program that the mark names. `dealt`: each case of a matrix runs on one of the
programs, so that all programs share the cases (tests/kit/dealt.py).
"""

PROGRAMS: Final[Mapping[str, str]] = {
    "redis-server": "the same tests on Redis",
    "valgrind": "the cost of each verb",
    "promtool": "rules of alerts",
    "chromedriver": "pages in a browser",
}
"""Programs that `.ci/run` gets, and what is tested with each."""


def is_on_redis_cluster(file: str) -> bool:
    """Return whether `make cluster-test` runs a file: it or its folder is in the list."""
    return any(
        file == name or (name.endswith("/") and file.startswith(name)) for name in ON_REDIS_CLUSTER
    )


def mark(items: Iterable[pytest.Item], programs: Container[str]) -> None:
    """Mark the tests of `make test`, without those of these server programs, and those of
    `make cluster-test`.
    """
    told: set[tuple[str, str]] = set()
    for item in items:
        file = item.nodeid.partition("::")[0].removeprefix("tests/")
        name = getattr(item, "originalname", item.name)
        params = (
            item.callspec.params
            if isinstance(item, pytest.Function) and hasattr(item, "callspec")
            else {}
        )
        if is_on_redis_cluster(file):
            item.add_marker(pytest.mark.redis_cluster)
        story = name in STORIES.get(file, ())
        once = story or name in FIRST.get(file, ())
        if once and ((file, name) in told or params.get("server_kind") == FAKE):
            continue
        if name in LONG.get(file, ()) or (item.get_closest_marker("serial") and not story):
            continue
        if params.get("server_kind") in programs and not any(map(item.get_closest_marker, ONE)):
            continue
        told.add((file, name))
        item.add_marker(pytest.mark.quick)


def left_out(quick: bool) -> Iterator[str]:
    """Yield what a run has left out, and why, a line each."""
    missing = {program: what for program, what in PROGRAMS.items() if shutil.which(program) is None}
    if rabbitmq_program() is None:
        missing["rabbitmq-server"] = "a broker that is RabbitMQ"
    for program, what in missing.items():
        yield f"no {program}: {what} (.ci/run unpacks it)"
    if libraries := works_with.missing():
        yield f"no {', '.join(libraries)}: libraries beside Celery (.ci/works-with installs them)"
    if quick:
        yield (
            "this is one story of each behaviour: `make test-all` runs the other tests of stacks, "
            "and the long tests"
        )
