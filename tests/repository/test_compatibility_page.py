"""Every row of docs/compatibility.md has a test. README and the guide for users of sb3-contrib refer to that page."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
PLUGINS = "plugins/rlsdk-{}/tests/test_{}.py::test_{}"


def there(file: str, *names: str) -> tuple[str, ...]:
    path = next(
        path for folder in ("plugins/rlsdk-sb3/tests", "tests") for path in (ROOT / folder).rglob(f"test_{file}.py")
    )
    return tuple(f"{path.relative_to(ROOT).as_posix()}::test_{name}" for name in names)


def plugin(algorithm: str, file: str, *names: str) -> tuple[str, ...]:
    return tuple(PLUGINS.format(algorithm, file, name) for name in names)


def here(*names: str) -> tuple[str, ...]:
    return there("documented_differences", *names)


FILES = {
    "files": here("files_hold_no_pickle_and_ask_for_functions")
    + plugin("interchange", "interchange", "actions_are_theirs"),
    "`tensorboard_log` of a loaded model": here("files_hold_no_pickle_and_ask_for_functions"),
    "`replay_buffer_kwargs` that name a folder, and arguments for your own classes that may name files": there(
        "hostile_files", "a_file_does_not_say_where_a_memory_lies", "arguments_that_may_be_places_are_asked_for"
    ),
    "networks larger than the file allows, `net_arch` of more than 256 layers": there(
        "hostile_files", "small_files_do_not_make_long_work", "layers_are_limited_for_everybody"
    ),
    '`custom_objects={"learning_rate": 0.0, "lr_schedule": ..., "clip_range": ...}` of `load`, as in rl-zoo': there(
        "messages_of_files", "custom_objects_of_the_documented_zoo"
    ),
    "`load(force_reset=False)`": there("resume", "stopped_and_resumed_equals_never_stopped"),
    "`save`": there("documented_arguments", "where_files_go"),
    '`save(exclude=["learning_rate"])`': there("documented_arguments", "where_files_go"),
    "`set_parameters` from an agent whose Dict spaces have their keys in another order": there(
        "keys_in_another_order", "parameters_of_other_entries_are_refused"
    ),
    "`set_parameters(exact_match=True)`": there("documented_arguments", "exact_match_means_every_parameter"),
    "`model.load(...)` on an instance": here("files_hold_no_pickle_and_ask_for_functions"),
}
CONSTRUCTOR = {
    "import": here("what_the_six_have_not_says_what_to_use")
    + there("documented_arguments", "every_documented_parameter_is_accepted_with_its_default"),
    "`create_eval_env`; `eval_env`, `eval_freq`, `n_eval_episodes`, `eval_log_path` of `learn`": there(
        "documented_arguments", "constructor_arguments_without_effect", "arguments_of_learn"
    ),
    "settings as attributes": there(
        "agent_settings",
        "an_assigned_setting_takes_effect_and_is_in_the_file",
        "a_setting_that_cannot_change_says_how_it_can",
        "settings_read_as_documented",
    ),
    "a new attribute, `model.gama = 0.9`": there(
        "agent_settings", "names_that_do_not_exist_are_refused_with_the_closest_one", "own_values_have_a_place"
    ),
    "`model.rollout_buffer`, `rollout_buffer_class`, `rollout_buffer_kwargs`": (
        *here("what_the_six_have_not_says_what_to_use"),
        *there("documented_arguments", "constructor_arguments_without_effect"),
    ),
    "`model.action_noise = value`": there("agent_settings", "a_refused_value_changes_nothing"),
    "`model.seed = value`": there("agent_settings", "members_say_how_they_change"),
    "`model.ep_info_buffer`": there("agent_settings", "statistics_of_training_can_be_read"),
    "`policy_aliases`": here("what_the_six_have_not_says_what_to_use"),
    "`policy_kwargs=dict(shared_lstm=True, share_features_extractor=False)`": there(
        "documented_arguments", "settings_without_effect_are_refused"
    ),
    "`optimizer_class`, `optimizer_kwargs` of ARS": there(
        "documented_arguments", "settings_without_effect_are_refused"
    ),
    "methods of `model.policy` other than `predict_values`, `evaluate_actions`, `get_distribution`": here(
        "what_the_six_have_not_says_what_to_use"
    ),
    "`log_ent_coef`, `ent_coef_optimizer`, `exploration_schedule`, `n_quantiles`, `weights` of ARS; private names such as"
    " `_logger`, `_last_obs`": there(
        "absent_members", "of_single_algorithms", "documented_private_names_cannot_be_assigned"
    ),
    "`get_distribution` of recurrent policies": there("policy_questions", "a_memory_is_what_predict_returned")
    + here("networks_are_those_asked_for"),
    "`train()` of on-policy algorithms": there("documented_arguments", "arguments_of_learn"),
    "subclasses that override `train`, `collect_rollouts` or `_store_transition` (called by `learn`), or `predict` (called by"
    " evaluations)": there("subclasses", "methods_that_have_no_effect_are_named"),
    "attributes that a subclass sets in its `__init__`": there("subclasses", "own_attributes_are_not_stored"),
    "`pickle.dumps(model)`": there("subclasses", "agents_are_not_pickled"),
    "`learn` called twice with `reset_num_timesteps=True`": (
        *plugin("tqc", "settings", "warm_up_is_not_repeated_by_a_second_learn"),
        *there("agent", "timesteps_and_reset"),
    ),
    "`collect_rollouts`": here("what_the_six_have_not_says_what_to_use"),
    "torch threads in `learn`": there("agent", "threads_are_put_back"),
    "objects of stable-baselines3 as arguments": here(
        "objects_of_the_peer_work_or_are_refused", "vector_environments_of_the_peer_are_refused"
    )
    + there("documented_callbacks", "the_peers_own_callbacks_run"),
    "unknown keyword": here("unknown_keywords_are_value_errors"),
    "`learning_starts` of QRDQN": there("guide_of_names", "every_member_of_the_first_row_has_the_documented_arguments"),
    "arguments of `learn` after `reset_num_timesteps`, by position": there(
        "guide_of_names", "arguments_of_learn_that_differ_between_versions_are_given_by_name"
    ),
    "`log_interval` of `learn`": here("logs_come_as_often_as_documented"),
    "`set_random_seed(None)`": there("agent", "set_random_seed"),
}
POLICIES = {
    "`policy`": there(
        "policy_names",
        "every_name_is_one_of_the_algorithms_policies",
        "a_name_is_stored_as_text",
        "a_subclass_is_refused_with_what_to_use_instead",
    ),
    "bounds of the space given to an extractor with `normalize`": here("what_extractors_are_given"),
    "Tuple observations in an extractor": here("what_extractors_are_given"),
    "`model.critic(obs, actions)` with tensors of N rows": there("names_of_users", "what_networks_and_policies_answer"),
    "`model.actor(obs)`": there("names_of_users", "what_networks_and_policies_answer"),
    "`features_extractor`, `action_net`, `value_net`, `lstm_actor`, `log_std`, `mu`, `actor`, `q_net`, `quantile_net`, `device`"
    " of `model.policy` and networks": there(
        "absent_members", "parts_of_policies_are_given_under_their_documented_names", "a_part_that_a_user_sets_is_his"
    ),
    "`mlp_extractor`, `optimizer`, `net_arch`, `critic` and others of `model.policy` and networks": there(
        "absent_members", "layers_have_other_names", "of_every_policy_and_model"
    ),
    "what `get_distribution(obs)` returns": (
        *there("names_of_users", "distributions_have_their_numbers_themselves"),
        *there("absent_members", "of_distributions"),
    ),
    "values of `predict_values` and `evaluate_actions`": there("names_of_users", "what_networks_and_policies_answer"),
    "names in `model.policy.state_dict()` and `get_parameters()`": there("names_of_users", "names_of_parameters"),
    "replaced layers of `model.policy`": there(
        "replaced_layers", "prediction_training_and_file_agree", "layers_replaced_while_training"
    ),
    "`torch.set_default_dtype(torch.float64)`, `torch.set_default_device(...)`": there(
        "torch_modes", "defaults_that_agents_cannot_work_with_are_named"
    ),
    "`net_arch=[128, 128]`": here("networks_are_those_asked_for")
    + there("features_extractors", "documented_forms_of_net_arch"),
    "`sde_net_arch` of on-policy algorithms": here("unknown_keywords_are_value_errors"),
    "memory of RecurrentPPO": (
        *here("networks_are_those_asked_for"),
        *there("recurrent", "the_first_steps_of_a_piece_that_goes_on_only_refresh_its_memory"),
    ),
    "state of recurrent `predict`": here("networks_are_those_asked_for")
    + there("recurrent", "predict_carries_and_resets_its_state"),
}
CALLBACKS = {
    "callbacks": there("step_events", "every_event_reaches_callbacks_in_every_family_and_vectorization"),
    "`locals`, `n_calls`, `model`, `parent`, `training_env`, `logger` of `CallbackList`, `CheckpointCallback`,"
    " `StopTraining...` and other callbacks here": there("absent_members", "of_callbacks"),
    "`locals` of callbacks": there("step_events", "locals_have_what_is_documented")
    + here("callbacks_that_return_nothing_go_on"),
    "a callback that returns None": here("callbacks_that_return_nothing_go_on"),
    "a training ended by a callback": there(
        "step_events",
        "a_complete_round_is_learned_from_when_its_last_step_stops",
        "a_round_of_episodes_that_is_cut_short_is_remembered",
    ),
    "`_on_step` with ARS": there("step_events", "population_methods_end_after_what_is_being_played"),
    "`logger.name_to_value`": here("callbacks_that_return_nothing_go_on"),
    "`time/iterations`; `train/policy_objective` of TRPO; `train/iterations`, `rollout/return_std` of ARS": there(
        "absent_members", "metrics_with_other_names"
    ),
    "output formats of one's own": here("sinks_get_numbers_and_media_apart"),
    "`logger.dump(step)`": there("logger", "values_recorded_inside_and_outside_go_to_every_sink"),
    "media for a console or CSV": there("logger", "what_no_sink_shows_is_warned_of_once"),
    "lists, tables and None in `logger.record`": there("logger", "lists_tables_and_other_kinds_are_written"),
    "`Video` in TensorBoard": there("logger", "a_picture_that_cannot_be_drawn_costs_no_other_value"),
    "periods (`eval_freq`, checkpoints)": there("agent", "periods_count_environment_steps")
    + there("names_of_users", "evaluations_due_in_one_round_are_one"),
    "best agent of `EvalCallback`": there("documented_callbacks", "what_an_evaluation_prints_and_calls")
    + there("earlier_training", "a_new_evaluation_keeps_the_best_agent_of_an_earlier_training"),
    "evaluations.npz of a continued training": there("documented_callbacks", "evaluations_are_written_to_a_file")
    + there("earlier_training", "results_that_do_not_go_on_are_kept"),
    "`EvalCallback`: environments normalized like the training's": there(
        "preprocessing", "returns_stay_true_in_logs_and_evaluation"
    ),
    "`CheckpointCallback`": there("documented_callbacks", "checkpoints_with_a_prefix")
    + there("earlier_training", "checkpoints_of_an_earlier_training_are_kept_beside_the_new_ones")
    + there("preprocessing", "a_file_holds_the_statistics_and_predict_applies_them"),
    "`evaluate_policy(model)`": there("documented_callbacks", "evaluation_calls_back_after_every_step"),
    "metrics in MLflow": plugin("trackers", "trackers", "mlflow_names_the_database_that_nobody_chose"),
    "evaluation of an environment that never ends": there("endless_episodes", "nobody_waits_for_ever"),
    "`evaluate_policy(render=True)`, `EvalCallback(render=True)`": there(
        "documented_callbacks", "rendering_needs_an_environment_that_shows_itself"
    ),
}
ENVIRONMENTS = {
    "`VecNormalize`, `VecFrameStack`": there(
        "preprocessing",
        "on_policy_training_sees_what_the_peers_wrapper_gives",
        "frames_are_those_of_gymnasiums_wrapper",
    ),
    "`get_vec_normalize_env`": here("the_normalizer_stands_for_the_wrapper"),
    "`get_env()`": there(
        "documented_loop",
        "the_documented_loop",
        "training_begins_new_episodes_after_the_environments_were_moved",
        "a_running_training_is_not_disturbed",
    ),
    "`get_env().seed(s)`": here("streams_of_environments_differ") + there("documented_loop", "seeds"),
    "`get_env().set_options(options)`": there(
        "seeds_and_options", "options_reach_the_next_reset_once", "environments_that_take_no_options_say_so"
    ),
    "spaces that `seed` seeds": there(
        "seeds_and_options",
        "what_environments_draw_from_their_spaces_follows_from_the_seed",
        "the_spaces_of_get_env_are_seeded_as_those_of_the_documented_library",
    ),
    "environments inside gymnasium's `NormalizeObservation` or `NormalizeReward`": there(
        "statistics_of_wrappers", "trainings_in_them_warn_and_name_the_setting"
    ),
    '`render("human")` of `get_env()`': there("documented_loop", "pictures"),
    "`make_vec_env(wrapper_class, vec_env_cls, vec_env_kwargs, start_index, monitor_kwargs)`": here(
        "arguments_of_make_vec_env_are_explained"
    ),
    "observations and actions of `make_vec_env(...)`": here("the_loop_over_what_make_vec_env_gives"),
    "environments in `make_vec_env`": here("the_loop_over_what_make_vec_env_gives"),
    "one instance twice in a process-based vector environment": there(
        "environment_faults", "one_instance_is_not_two_environments"
    ),
    "`check_env`": here("documented_test_environments_pass_the_check")
    + there("environment_faults", "check_env_finds_wrong_fields", "check_env_advises_where_training_is_possible")
    + there("environments_of_users", "check_env_looks_at_the_last_observation_of_episodes")
    + there("environments_of_users", "check_env_calls_compute_reward_with_batches"),
    "arguments of `InvalidActionEnvDiscrete`, `IdentityEnv`, `FakeImageEnv`, `SimpleMultiObsEnv` and other test environments": (
        there("absent_members", "test_environments_have_arguments_of_their_own")
    ),
    "`Monitor(override_existing=)`": plugin(
        "envs", "wrappers", "monitor_writes_and_continues_a_file", "monitor_has_the_documented_members"
    ),
    "`make_atari_env`": here("atari_environments_have_the_documented_rewards"),
    "`TimeFeature`": plugin("envs", "wrappers", "time_feature_of_a_vector", "time_feature_of_anything_else")
    + there("environment_faults", "time_feature_extends_the_observation_of_goals"),
    "`env=` a `VecEnv` of stable-baselines3": here("vector_environments_of_the_peer_are_refused"),
    "Discrete spaces": here("discrete_spaces_have_a_largest_size"),
    "`Discrete(n, start=k)`": plugin(
        "interchange", "interchange", "actions_of_imported_agents_begin_at_the_start_of_the_space"
    ),
    "MaskablePPO on an environment without masks": here("masks_are_needed_unless_refused"),
    "`predict` of MaskablePPO without `action_masks`": here("masks_are_needed_unless_refused"),
    "masks of MultiBinary actions": here("masked_bits_have_the_documented_probabilities"),
    "masks elsewhere": here("other_algorithms_use_masks_that_are_there"),
}
TRAINING = {
    "`train_freq` of TQC": plugin(
        "tqc", "settings", "train_freq_and_gradient_steps", "updates_count_rounds_over_several_environments"
    ),
    "`gradient_steps=-1` of TQC": plugin("tqc", "settings", "updates_count_rounds_over_several_environments"),
    "`total_timesteps` that is not a multiple of a round": here("rounds_are_whole_and_actions_are_stored_as_given")
    + there(
        "length_of_training",
        "a_training_ends_after_exactly_the_steps_that_were_asked_for",
        "a_rounded_number_of_steps_is_a_warning_once_per_agent",
    ),
    "schedules, exploration and progress": there(
        "length_of_training",
        "schedules_run_over_several_calls_and_files",
        "the_count_goes_on_and_without_the_argument_each_call_has_a_schedule_of_its_own",
    ),
    "action noise of another size than the action": there("exploration", "noise_of_another_size_is_refused"),
    "`optimizer_kwargs` of QRDQN without `optimizer_class`": there(
        "optimizer_arguments", "arguments_without_a_class_are_used_by_qrdqn"
    ),
    "`optimizer_class`": there(
        "layerwise_optimizers",
        "the_steps_are_those_of_torch",
        "stacked_critics_are_trained_as_separate_networks",
        "what_cannot_be_used_is_refused_in_one_line",
    ),
    "`tau` of TD3 and DDPG with `share_features_extractor=True`": there(
        "loop_parity", "a_shared_target_encoder_moves_once_per_update"
    ),
    "`target_update_interval` of TQC": plugin("tqc", "settings", "target_update_interval_and_tau")
    + plugin("tqc", "schedule_parity", "the_target_network_moves_when_the_peers_does"),
    "Box actions of SAC, TQC, TD3 and DDPG with bounds beyond 1e18, such as the largest float32": there(
        "action_bounds", "numbers_that_stand_for_infinity_are_no_bounds"
    ),
    "actions in the replay buffer": here("rounds_are_whole_and_actions_are_stored_as_given"),
    "more environments than `target_update_interval` of DQN and QRDQN": here(
        "a_target_interval_of_less_than_a_step_warns"
    ),
    "`target_update_interval` and exploration of QRDQN": plugin(
        "qrdqn", "schedule_parity", "every_step_explores_and_every_target_moves_as_the_peers"
    ),
    "log-density of squashed actions": here("the_density_of_the_peer_is_off_where_tanh_saturates")
    + there("numbers", "squashed_density_is_exact_where_tanh_saturates"),
    "`model.replay_buffer.size()`, `pos`, `full`, `add(...)`": there(
        "names_of_users", "replay_buffers_say_how_to_ask_them"
    ),
    "`copy_info_dict`, `handle_timeout_termination` in `replay_buffer_kwargs`": there(
        "names_of_users", "documented_arguments_of_replay_buffers_are_explained"
    ),
}
NOISE = {
    "`sde_sample_freq`": there("gsde", "matrices_are_drawn_when_the_peers_are")
    + plugin("tqc", "gsde_parity", "matrices_are_drawn_when_the_peers_are"),
    "entropy of squashed gSDE policies, on-policy": there("numbers", "squashed_entropy_against_numerical_integration"),
    "`train/std` with `use_expln`": plugin("recurrent-ppo", "parity", "an_update_with_gsde_equals_the_peers"),
    "gSDE in updates": plugin("tqc", "gsde_parity", "the_expected_gradient_is_the_peers"),
}
SINGLE = {
    "TRPO, `target_kl`": plugin("trpo", "update_by_hand", "the_bound_is_per_dimension_or_of_the_whole_action"),
    "TRPO, conjugate gradients": here("conjugate_gradients_start_at_zero_and_stop_without_curvature"),
    "`ARS.evaluate_candidates`": there(
        "documented_arguments", "ars_takes_the_documented_helper_and_evaluates_candidates"
    ),
    "ARS in parallel": there("documented_arguments", "ars_takes_the_documented_helper_and_evaluates_candidates")
    + plugin("ars", "search_by_hand", "the_result_is_the_same_to_the_bit_wherever_candidates_are_played"),
    "`seed`, `set_options`, `send_jobs`, `get_results`, `get_obs_rms`, `sync_obs_rms` of `AsyncEval`": there(
        "documented_arguments", "ars_takes_the_documented_helper_and_evaluates_candidates"
    ),
    "ARS with an environment id": here("ars_plays_sixteen_candidates_side_by_side"),
    "ARS, seeds of episodes": plugin(
        "ars", "search_by_hand", "the_result_is_the_same_to_the_bit_wherever_candidates_are_played"
    ),
}
SHOWN = {
    "Files": FILES,
    "Constructor, settings and methods": CONSTRUCTOR,
    "Policies and networks": POLICIES,
    "Callbacks, logging and evaluation": CALLBACKS,
    "Environments, wrappers and masks": ENVIRONMENTS,
    "Off-policy training and replay": TRAINING,
    "Exploration with gSDE": NOISE,
    "Single algorithms": SINGLE,
}
"""The tests that prove what a row states about rlsdk, by section and topic."""


def rows() -> list[tuple[str, str, list[str]]]:
    """(section, topic, cells) of each row of the page, without those that tests/repository/test_older_systems.py covers."""
    found, section = [], ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif section == "Systems of the older documents":  # see tests/repository/test_older_systems.py
            continue
        elif line.startswith("| ") and not line.startswith("| topic "):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            found.append((section, cells[0], cells[1:]))
    return found


ABSENT = "Names that do not exist here"
SHOWN[ABSENT] = {
    topic: there("absent_members", "of_packages", "the_page_lists_them")
    for section, topic, _ in rows()
    if section == ABSENT
}


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_every_row_has_a_test_and_every_test_a_row() -> None:
    topics = [(section, topic) for section, topic, _ in rows()]
    named = [(section, topic) for section, shown in SHOWN.items() for topic in shown]
    assert len(topics) == len(set(topics)) > 80
    assert set(topics) - set(named) == set(), "rows without a test"
    assert set(named) - set(topics) == set(), "tests of rows that are gone"


def test_the_tests_exist() -> None:
    for shown in SHOWN.values():
        for topic, tests in shown.items():
            assert tests, topic
            for file, _, name in (test.partition("::") for test in tests):
                assert name in functions_of(file), f"{topic}: {file} has no {name}"


def test_rows_are_whole_and_say_something_once() -> None:
    statements: dict[str, str] = {}
    for section, topic, cells in rows():
        assert len(cells) == 2, f"{section}, {topic}: {len(cells) + 1} columns"
        assert all(cells), topic
        if len(cells[1]) > 30:
            assert statements.setdefault(cells[1], topic) == topic, "two rows are equal"


def test_errors_of_the_page_exist() -> None:
    from rlsdk import errors

    for name in set(re.findall(r"`(\w+Error|\w+Fault)`", PAGE.read_text())) - {
        "ImportError",
        "TypeError",
        "ValueError",
    }:
        assert hasattr(errors, name) or name == "FormatUnsupportedError", name
