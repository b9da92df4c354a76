"""Real bugs, planted on purpose: each must be caught by the clause that is there for it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch

import rlsdk_tqc.algorithm
from rlsdk import agent, persistence
from rlsdk.buffers import replay
from rlsdk.distributions import Categorical, SquashedGaussian
from rlsdk.environments.actions import ActionDecoder
from rlsdk.errors import ContractViolation
from rlsdk.networks import ActionScale, ActorCritic, NumpyPolicy, SquashedActor
from rlsdk.preparation import Normalizer
from rlsdk.session import Session
from rlsdk.storage import archive
from rlsdk.testing import clauses, run_checks, verify
from rlsdk.updates import FlatOptimizer
from rlsdk_ars.algorithm import RandomSearch
from rlsdk_tqc.loss import truncated_target

Patch = pytest.MonkeyPatch
MUTANTS: list[tuple[str, str, Callable[[Patch], None]]] = []


def mutant(clause: str, algorithm: str = "tqc") -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def register(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        MUTANTS.append((clause, algorithm, plant))
        return plant

    return register


@mutant("buffer.rows-are-true")
def a_time_limit_counts_as_termination(patch: Patch) -> None:
    extend = replay.ReplayBuffer.extend

    def broken(self: Any, item: Any) -> None:
        steps = replace(item.steps, terminated=item.steps.terminated | item.steps.truncated)
        extend(self, replace(item, steps=steps))

    patch.setattr(replay.ReplayBuffer, "extend", broken)


@mutant("buffer.rows-are-true")
def bootstrap_from_the_reset_observation(patch: Patch) -> None:
    extend = replay.ReplayBuffer.extend
    patch.setattr(
        replay.ReplayBuffer, "extend", lambda self, item: extend(self, replace(item, final_observations=None))
    )


@mutant("buffer.rows-are-true")
def terminations_bootstrap(patch: Patch) -> None:
    extend = replay.ReplayBuffer.extend

    def broken(self: Any, item: Any) -> None:
        extend(self, replace(item, steps=replace(item.steps, terminated=torch.zeros_like(item.steps.terminated))))

    patch.setattr(replay.ReplayBuffer, "extend", broken)


@mutant("buffer.length")
def length_counts_rows_not_transitions(patch: Patch) -> None:
    patch.setattr(replay.ReplayBuffer, "__len__", lambda self: self.filled)


@mutant("buffer.size-known-first")
def size_forgets_the_second_observation(patch: Patch) -> None:
    true = replay.ReplayBuffer.bytes_required
    patch.setattr(replay.ReplayBuffer, "bytes_required", lambda self: int(true(self) * 0.6))


@mutant("buffer.samples-are-copies")
def samples_are_views(patch: Patch) -> None:
    def view(self: Any, index: Any) -> Any:
        from rlsdk.records import Transitions
        from rlsdk.tree import map_tensors

        flat = {n: map_tensors(lambda leaf: leaf.flatten(0, 1)[: self.filled], v) for n, v in self.storage.items()}
        rows = torch.arange(self.filled)
        return Transitions(
            flat["observation"], flat["action"], flat["reward"], flat["discount"], flat["next_observation"], rows
        )

    patch.setattr(replay.ReplayBuffer, "at", view)


@mutant("buffer.state-round-trip")
def the_ring_position_is_not_stored(patch: Patch) -> None:
    true = replay.ReplayBuffer.state_dict
    patch.setattr(replay.ReplayBuffer, "state_dict", lambda self: {**true(self), "filled": self.filled - 1})


@mutant("policy.action-in-space")
def actions_are_not_scaled(patch: Patch) -> None:
    patch.setattr(ActionScale, "to_environment", lambda self, unit: unit.reshape(-1, *self.shape))
    patch.setattr(ActionDecoder, "_leaf", lambda self, action: action.numpy().reshape(-1, *self.shape))


@mutant("policy.deterministic")
def deterministic_actions_are_sampled(patch: Patch) -> None:
    act = SquashedActor.act
    patch.setattr(
        SquashedActor,
        "act",
        lambda self, o, c, *, deterministic, generator: act(self, o, c, deterministic=False, generator=generator),
    )


@mutant("policy.randomness-from-generator")
def samples_come_from_the_global_generator(patch: Patch) -> None:
    unit = SquashedActor._unit_by_hand
    patch.setattr(SquashedActor, "_unit_by_hand", lambda self, *args: unit(self, *args[:-1], torch.default_generator))


@mutant("policy.rows-independent")
def rows_are_normalised_together(patch: Patch) -> None:
    mean = SquashedActor._mean
    patch.setattr(SquashedActor, "_mean", lambda self, latent: mean(self, latent) - mean(self, latent).mean(0))


@mutant("policy.no-hidden-state")
def the_policy_remembers_in_itself(patch: Patch) -> None:
    act, count = SquashedActor.act, [0]

    def broken(self: Any, observation: Any, carry: Any, *, deterministic: bool, generator: Any) -> Any:
        count[0] += 1
        answer = act(self, observation, carry, deterministic=deterministic, generator=generator)
        return replace(answer, action=(answer.action + 0.01 * count[0]).clamp(-2, 3))

    patch.setattr(SquashedActor, "act", broken)


@mutant("distribution.entropy-is-mean-surprise")
def entropy_ignores_the_squashing(patch: Patch) -> None:
    patch.setattr(SquashedGaussian, "entropy", lambda self: self._before_tanh.entropy())


@mutant("distribution.kl")
def kl_has_its_arguments_swapped(patch: Patch) -> None:
    kl = SquashedGaussian.kl_divergence
    patch.setattr(SquashedGaussian, "kl_divergence", lambda self, other: kl(other, self) * 3.0)


@mutant("distribution.shapes")
def the_event_axis_is_not_summed(patch: Patch) -> None:
    density = SquashedGaussian.log_prob
    patch.setattr(SquashedGaussian, "log_prob", lambda self, action: density(self, action).unsqueeze(-1))


@mutant("algorithm.state-round-trip")
def optimiser_moments_are_not_restored(patch: Patch) -> None:
    patch.setattr(FlatOptimizer, "load_state_dict", lambda self, state: None)


@mutant("algorithm.update-learns")
def the_actor_is_never_updated(patch: Patch) -> None:
    sampled = SquashedActor.sampled

    def without_gradient(self: Any, *arguments: Any) -> Any:
        return (*sampled(self, *arguments)[:2], lambda *slopes: None)

    patch.setattr(SquashedActor, "sampled", without_gradient)


@mutant("algorithm.metrics")
def a_metric_keeps_its_graph(patch: Patch) -> None:
    kind = rlsdk_tqc.algorithm.TruncatedQuantileCritics
    update = kind.update

    def broken(self: Any, batch: Any, *, progress: float) -> Any:
        return {**update(self, batch, progress=progress), "train/extra": next(self.actor.parameters()).sum()}

    patch.setattr(kind, "update", broken)


@mutant("algorithm.batch-unchanged")
def rewards_are_scaled_in_place(patch: Patch) -> None:
    kind = rlsdk_tqc.algorithm.TruncatedQuantileCritics
    update = kind.update

    def broken(self: Any, batch: Any, *, progress: float) -> Any:
        batch.reward.mul_(0.5)
        return update(self, batch, progress=progress)

    patch.setattr(kind, "update", broken)


@mutant("agent.save-load-predict")
def loading_leaves_fresh_weights(patch: Patch) -> None:
    patch.setattr(persistence, "_restore", lambda agent, sections: None)


@mutant("agent.evaluation-does-not-disturb")
def evaluation_draws_from_the_training_stream(patch: Patch) -> None:
    def session(self: Any, n: int = 1, *, deterministic: bool = True, seed: int | None = None) -> Session:
        return Session(self.parts.policy, self.facts, n, deterministic=deterministic, generator=self.streams["action"])

    patch.setattr(agent.Agent, "session", session)


@mutant("agent.seed-reproduces")
def networks_start_from_global_random_state(patch: Patch) -> None:
    import contextlib

    patch.setattr(agent, "initialisation", lambda seed: contextlib.nullcontext())


@mutant("agent.global-state-untouched")
def building_seeds_the_global_generator(patch: Patch) -> None:
    import contextlib

    patch.setattr(agent, "initialisation", lambda seed: contextlib.nullcontext(torch.manual_seed(seed + 12345)))


@mutant("agent.parameters-round-trip")
def set_parameters_skips_the_algorithm(patch: Patch) -> None:
    patch.setattr(persistence, "_apply", lambda agent, p: agent.parts.policy.load_state_dict(p["policy"]))


@mutant("agent.parameters-round-trip")
def parameters_are_set_before_all_are_looked_at(patch: Patch) -> None:
    true = persistence.set_parameters

    def broken(agent: Any, source: Any, *, exact_match: bool) -> None:
        for name, value in source.items() if isinstance(source, dict) else ():
            if name in agent.get_parameters():
                true(agent, {name: value}, exact_match=False)
        true(agent, source, exact_match=exact_match)

    patch.setattr(persistence, "set_parameters", broken)


@mutant("agent.predict-array")
def one_action_comes_back_as_a_number(patch: Patch) -> None:
    predict = agent.Agent.predict

    def broken(self: Any, observation: Any, *arguments: Any, **keywords: Any) -> Any:
        action, state = predict(self, observation, *arguments, **keywords)
        return (action.tolist() if action.ndim == 1 else action), state

    patch.setattr(agent.Agent, "predict", broken)


@mutant("serializer.damage-refused")
def digests_are_not_checked(patch: Patch) -> None:
    class Anything:
        def hexdigest(self) -> Any:
            return self

        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = None  # type: ignore[assignment]

    real = archive.hashlib.sha256
    state = {"writing": True}

    def sha256(data: bytes) -> Any:
        return real(data) if state["writing"] else Anything()

    write = archive.write_archive

    def writing(*arguments: Any) -> None:
        state["writing"] = True
        write(*arguments)
        state["writing"] = False

    patch.setattr(archive.hashlib, "sha256", sha256)
    patch.setattr("rlsdk.storage.choose.write_archive", writing)
    patch.setattr("zipfile.ZipExtFile._update_crc", lambda self, data: None)


@mutant("serializer.round-trip")
def half_precision_on_disk(patch: Patch) -> None:
    encode = archive._encode

    def broken(key: str, section: Any) -> Any:
        flat = archive.tree.flatten(section)
        return encode(
            key, {n: v.half().float() if getattr(v, "dtype", None) == torch.float32 else v for n, v in flat.items()}
        )

    patch.setattr(archive, "_encode", broken)


@mutant("plugin.unsupported-space-refused")
def any_space_is_taken(patch: Patch) -> None:
    patch.setattr("rlsdk_tqc.build.require_spaces", lambda *a, **k: None)


@mutant("plugin.settings-round-trip")
def settings_lose_precision(patch: Patch) -> None:
    from rlsdk.testing.checks import plugin

    unstructure = plugin.unstructure
    patch.setattr(plugin, "unstructure", lambda config: {**unstructure(config), "tau": round(config.tau, 2)})


@mutant("plugin.presets-fit")
def a_preset_names_a_setting_that_is_no_more(patch: Patch) -> None:
    from rlsdk.registry import Preset
    from rlsdk.testing.checks import plugin

    old = Preset(env="Pendulum-v1", steps=1, settings={"quantiles": 25})
    patch.setattr(plugin, "presets", lambda name: (old,))


@mutant("plugin.unknown-setting-refused")
def unknown_settings_are_ignored(patch: Patch) -> None:
    from rlsdk.testing.checks import plugin

    true = plugin.structure

    def lenient(values: Any, kind: Any) -> Any:
        known = {f.name for f in attrs.fields(kind)}
        return true({name: value for name, value in values.items() if name in known}, kind)

    patch.setattr(plugin, "structure", lenient)


@mutant("plugin.import-is-free")
def the_plugin_imports_torch(patch: Patch) -> None:
    source = Path(rlsdk_tqc.__file__).parent
    copy = Path(tempfile.mkdtemp(prefix="rlsdk-mutant-"))
    shutil.copytree(source, copy / "rlsdk_tqc")
    with (copy / "rlsdk_tqc" / "plugin.py").open("a") as stream:
        stream.write("import torch\n")
    patch.setenv("PYTHONPATH", str(copy))


def say_in_the_manifest(patch: Patch, **changes: Any) -> None:
    """The kit reads a manifest with other entries."""
    from rlsdk.testing import subject

    true = subject.find

    def find(name: str) -> Any:
        plugin = true(name)
        assert plugin.manifest is not None
        return attrs.evolve(plugin, manifest=attrs.evolve(plugin.manifest, **changes))

    patch.setattr(subject, "find", find)


@mutant("plugin.manifest-agrees")
def the_manifest_names_a_policy_that_is_not_there(patch: Patch) -> None:
    say_in_the_manifest(patch, policies=("MlpPolicy", "LstmPolicy"))


@mutant("plugin.claims-backed")
def the_manifest_claims_a_memory(patch: Patch) -> None:
    say_in_the_manifest(patch, traits=("gsde", "action_noise", "replay", "recurrent"))


@mutant("plugin.settings-documented")
def a_setting_has_no_help(patch: Patch) -> None:
    from rlsdk.testing.checks import plugin

    true = plugin.describe
    patch.setattr(plugin, "describe", lambda kind: [attrs.evolve(doc, help="") for doc in true(kind)])


@mutant("policy.episode-start-forgets", "recurrent-ppo")
def memory_survives_the_end_of_an_episode(patch: Patch) -> None:
    patch.setattr("rlsdk.memories.recurrent._forgotten", lambda state, is_first: state)


@mutant("policy.masks-obeyed", "maskable-ppo")
def masks_are_dropped(patch: Patch) -> None:
    of = Categorical.of
    patch.setattr(Categorical, "of", lambda logits, mask=None: of(logits, None))


@mutant("policy.ratio-is-one", "trpo")
def collected_likelihoods_are_of_another_scale(patch: Patch) -> None:
    estimates = ActorCritic.estimates

    def broken(self: Any, steps: Any) -> Any:
        true = estimates(self, steps)
        return replace(true, log_prob=true.log_prob * 1.001)

    patch.setattr(ActorCritic, "estimates", broken)


@mutant("agent.preparation-travels")
def statistics_stay_behind(patch: Patch) -> None:
    patch.setattr(Normalizer, "load_state_dict", lambda self, state: None)


@mutant("population.proposal", "ars")
def directions_come_from_the_global_generator(patch: Patch) -> None:
    propose = RandomSearch.propose

    def broken(self: Any, *, progress: float) -> Any:
        self.generator = torch.default_generator
        return propose(self, progress=progress)

    patch.setattr(RandomSearch, "propose", broken)


@mutant("population.rows-independent", "ars")
def candidates_share_a_normalisation(patch: Patch) -> None:
    make = NumpyPolicy.__call__

    def broken(self: Any, parameters: Any) -> Any:
        act = make(self, parameters)
        return lambda vectors: act(vectors - vectors.mean(0))

    patch.setattr(NumpyPolicy, "__call__", broken)


@mutant("population.same-everywhere", "ars")
def episodes_are_not_seeded(patch: Patch) -> None:
    from rlsdk.environments import trials

    def begin(self: Any) -> Any:
        observation, _ = self.environment.reset()
        return self.read(observation)

    patch.setattr(trials._Seat, "begin", begin)


@mutant("policy.action-in-space")
def predict_forgets_the_bounds(patch: Patch) -> None:
    predict = agent.Agent.predict

    def broken(self: Any, *arguments: Any, **keywords: Any) -> Any:
        action, state = predict(self, *arguments, **keywords)
        return action * 10.0, state

    patch.setattr(agent.Agent, "predict", broken)


@mutant("policy.deterministic")
def deterministic_actions_are_jittered(patch: Patch) -> None:
    act = SquashedActor.act

    def broken(self: Any, observation: Any, carry: Any, *, deterministic: bool, generator: Any) -> Any:
        answer = act(self, observation, carry, deterministic=deterministic, generator=generator)
        jitter = 0.01 * torch.rand((), generator=generator) if deterministic else 0.0
        return replace(answer, action=(answer.action + jitter).clamp(-2, 3))

    patch.setattr(SquashedActor, "act", broken)


@mutant("policy.randomness-from-generator")
def samples_know_the_global_seed(patch: Patch) -> None:
    act = SquashedActor.act

    def broken(self: Any, observation: Any, carry: Any, *, deterministic: bool, generator: Any) -> Any:
        answer = act(self, observation, carry, deterministic=deterministic, generator=generator)
        shift = 0.0 if deterministic else 0.01 * (torch.initial_seed() % 97) / 97
        return replace(answer, action=(answer.action * (1.0 - shift)))

    patch.setattr(SquashedActor, "act", broken)


@mutant("policy.no-hidden-state")
def starts_of_two_episodes_are_counted(patch: Patch) -> None:
    act = SquashedActor.act

    def broken(self: Any, observation: Any, carry: Any, *, deterministic: bool, generator: Any) -> Any:
        answer, pair = act(self, observation, carry, deterministic=deterministic, generator=generator), False
        if len(observation.is_first) == 2 and not deterministic:
            self.starts = getattr(self, "starts", 0) + int(observation.is_first.all())
            pair = not bool(observation.is_first.any())
        return replace(answer, action=answer.action * (1.0 - 0.01 * self.starts)) if pair else answer

    patch.setattr(SquashedActor, "act", broken)


@mutant("distribution.shapes")
def the_entropy_is_that_of_the_batch(patch: Patch) -> None:
    kl = SquashedGaussian.kl_divergence
    patch.setattr(SquashedGaussian, "kl_divergence", lambda self, other: kl(self, other)[None])


@mutant("buffer.samples-are-copies")
def batches_are_given_out_again(patch: Patch) -> None:
    at = replay.ReplayBuffer.at

    def broken(self: Any, index: Any) -> Any:
        key = self.written, tuple(index.tolist())
        kept = self.__dict__.setdefault("given_out", {})
        if key not in kept:
            kept[key] = at(self, index)
        return kept[key]

    patch.setattr(replay.ReplayBuffer, "at", broken)


@mutant("algorithm.state-round-trip")
def optimiser_moments_are_not_stored(patch: Patch) -> None:
    patch.setattr(FlatOptimizer, "state_dict", lambda self: {})
    patch.setattr(FlatOptimizer, "load_state_dict", lambda self, state: None)


@mutant("algorithm.batch-unchanged")
def the_positions_are_overwritten(patch: Patch) -> None:
    kind = rlsdk_tqc.algorithm.TruncatedQuantileCritics
    update = kind.update

    def broken(self: Any, batch: Any, *, progress: float) -> Any:
        batch.index.zero_()
        return update(self, batch, progress=progress)

    patch.setattr(kind, "update", broken)


@mutant("agent.save-load-predict")
def loading_rounds_the_policy(patch: Patch) -> None:
    restore = persistence._restore

    def broken(loaded: Any, sections: Any) -> None:
        restore(loaded, sections)
        if loaded.normalizer is None:
            for value in loaded.parts.policy.state_dict().values():
                value.mul_(1.001)

    patch.setattr(persistence, "_restore", broken)


@mutant("agent.seed-reproduces")
def long_runs_explore_by_the_clock(patch: Patch) -> None:
    learn, start = agent.Agent.learn, [0]

    def broken(self: Any, total_timesteps: int, *arguments: Any, **keywords: Any) -> Any:
        if total_timesteps == 40 and self.seed == 3:
            start[0] += 1
            self.streams["action"].manual_seed(start[0])
        return learn(self, total_timesteps, *arguments, **keywords)

    patch.setattr(agent.Agent, "learn", broken)


@mutant("serializer.damage-refused")
def digests_of_tensors_are_not_compared(patch: Patch) -> None:
    patch.setattr(archive, "_require_digest", lambda *arguments: None)
    patch.setattr("zipfile.ZipExtFile._update_crc", lambda self, data: None)


@mutant("serializer.round-trip")
def large_whole_numbers_lose_digits(patch: Patch) -> None:
    encode = archive._encode

    def broken(key: str, section: Any) -> Any:
        flat = archive.tree.flatten(section)
        whole = {n: v for n, v in flat.items() if getattr(v, "dtype", None) == torch.int64}
        return encode(key, {**flat, **{n: v.to(torch.int16).to(torch.int64) for n, v in whole.items()}})

    patch.setattr(archive, "_encode", broken)


@mutant("population.proposal", "ars")
def candidates_know_the_global_seed(patch: Patch) -> None:
    propose = RandomSearch.propose
    shift = 1e-3 / 97
    patch.setattr(
        RandomSearch,
        "propose",
        lambda self, *, progress: propose(self, progress=progress) + shift * (torch.initial_seed() % 97),
    )


FIRST = {clause: plant for clause, _, plant in reversed(MUTANTS)}
"""One mutant per clause is tried in the fast suite, all of them in the slow one."""
CASES = [
    pytest.param(clause, *rest, id=rest[-1].__name__, marks=() if FIRST[clause] is rest[-1] else pytest.mark.slow)
    for clause, *rest in MUTANTS
]


@pytest.mark.parametrize(("clause", "algorithm", "plant"), CASES)
def test_the_kit_catches(clause: str, algorithm: str, plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    verify(algorithm, clause)
    plant(monkeypatch)
    with pytest.raises(ContractViolation):
        verify(algorithm, clause)


def test_every_clause_has_a_mutant() -> None:
    assert {clause for clause, *_ in MUTANTS} == {clause.id for clause in clauses()}


@pytest.mark.slow
def test_each_clause_finds_what_no_other_finds() -> None:
    alone = set()
    for clause, algorithm, plant in MUTANTS:
        if clause in alone:
            continue
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            failed = {outcome.id for outcome in run_checks(algorithm) if outcome.status == "failed"}
        assert clause in failed, f"{plant.__name__} is not found by {clause}"
        alone |= failed if len(failed) == 1 else set()
    assert alone == {clause.id for clause in clauses()}


def test_the_hand_computed_target_catches_the_classic_mistakes() -> None:
    atoms = torch.tensor([[[1.0, 4.0, 9.0]], [[2.0, 3.0, 8.0]]])
    arguments = (torch.tensor([-3.0]), torch.tensor([10.0]), torch.tensor([0.5]), torch.tensor(2.0))
    expected = sorted(truncated_target(atoms, *arguments, keep=4)[0].tolist())
    pooled = atoms.movedim(0, 1).reshape(1, 6).sort().values
    entropy = -2.0 * -3.0
    wrong = {
        "smallest dropped": 10.0 + 0.5 * (pooled[0, 2:] + entropy),
        "entropy outside the discount": 10.0 + 0.5 * pooled[0, :4] + entropy,
        "entropy with the wrong sign": 10.0 + 0.5 * (pooled[0, :4] - entropy),
        "nothing dropped": 10.0 + 0.5 * (pooled[0] + entropy),
    }
    assert expected == pytest.approx((10.0 + 0.5 * (pooled[0, :4] + entropy)).tolist())
    for name, values in wrong.items():
        assert sorted(values.tolist()) != pytest.approx(expected), name
