"""What the entry point names: the algorithm comes from the hook, its files are changed by `upgrade`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlsdk.registry import AlgorithmSpec, hookimpl

from acme_recall.config import RecallConfig

if TYPE_CHECKING:
    from rlsdk.interfaces import BuildContext, Parts

Json = dict[str, object]


def build(context: BuildContext, config: RecallConfig) -> Parts:
    """Imports torch, so it is imported when an agent is made."""
    from acme_recall import algorithm

    return algorithm.build(context, config)


def agent() -> type[Any]:
    """The class users import."""
    from acme_recall.agent import Recall

    return Recall


def upgrade(settings: Json, state: Json, from_version: str) -> tuple[Json, Json]:
    """Files of 1.0.0: `tau` was called `polyak`, and the layers of policy and target `body`."""
    if from_version == "1.0.0":
        settings["tau"] = settings.pop("polyak")
        state["policy"] = _renamed(state["policy"])
        if "training" in state:
            training: Any = state["training"]
            learner = {**training["algorithm"], "target": _renamed(training["algorithm"]["target"])}
            state["training"] = {**training, "algorithm": learner}
    return settings, state


def _renamed(weights: Any) -> Json:
    return {name.replace("body.", "layers."): weight for name, weight in weights.items()}


SPEC = AlgorithmSpec(
    id="recall",
    family="off-policy",
    config_type=RecallConfig,
    build=build,
    policies=("MlpPolicy",),
    agent=agent,
    upgrade=upgrade,
    live=("learning_rate", "batch_size", "tau", "gamma", "train_freq", "learning_starts", "temperature"),
)


@hookimpl
def algorithm() -> AlgorithmSpec:
    """The spec, without torch."""
    return SPEC
