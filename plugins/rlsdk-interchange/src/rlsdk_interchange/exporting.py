"""Export policies for programs without rlsdk, as ONNX or in torch's own format. They include everything that `predict` does.

Inputs are `observation` as the environment returns it (`observation.KEY` for Dict observations), and `action_mask` if the agent
uses masks. Policies with a state (recurrent networks, stacked frames) also have the inputs `episode_start`
and `state.000`, ...

Outputs are `action` and, for policies with a state, `next_state.000`, ... The action is deterministic, in the units of the
environment, and clipped to its bounds. The next states are the states of the next call; the first states are zeros.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import attrs
import torch
from torch import Generator, Tensor, nn

from rlsdk import load, tree
from rlsdk.agent import Agent
from rlsdk.errors import DivergenceError, SettingsError, UsageError, message_of, one_line
from rlsdk.exploration import random_actions
from rlsdk.records import Act, Features, Observation
from rlsdk.runs import find_agent
from rlsdk.runtime import is_edited, pip_install, sealed, write_whole
from rlsdk.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple, choices_of, dtype_of, map_leaves, shape_of
from rlsdk_interchange.bounds import within_bounds
from rlsdk_interchange.cards import IN_CARDS, Results, model_card, results_of

FORMATS = {"onnx": ".onnx", "torch-export": ".pt2"}
TOLERANCE = 1e-5
ROWS = 3
"""Batch size of the examples with which the policy is traced."""


@attrs.frozen
class Exported:
    """A policy file: the names of its inputs and outputs in order, and the form of its states."""

    path: Path
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    states: tuple[tuple[str, tuple[int, ...]], ...]
    """(dtype, shape without the batch axis) of each state."""
    card: Path | None = None
    """The model card; None if none was written, or the one there was edited and left as it is."""


class ExportedPolicy(nn.Module):
    """The deterministic policy of an agent as a module from tensors to tensors."""

    def __init__(self, agent: Agent, *, masks: bool) -> None:
        """With `masks`, the module has the input `action_mask`."""
        super().__init__()
        self.policy, self.preprocessing = agent.parts.policy, agent.preprocessing
        self.action_space = agent.context.action_space
        self.modules_inside = nn.ModuleList(_modules(self.policy))
        self.observation_space = agent.context.observation_space
        self.masks = sum(choices_of(self.action_space)) if masks else 0
        self.example = map_leaves(self.observation_space, lambda _, leaf: _zeros(leaf, ROWS))
        self.carry = self.preprocessing.initial_carry(self.policy, ROWS)
        self.state_indices = self._states()

    def _states(self) -> list[int]:
        """Return the indices of the leaves of the carry that acting changes. Only exploration uses the others."""
        mask = torch.ones(ROWS, self.masks, dtype=torch.bool) if self.masks else None
        act = self._act(self.example, torch.ones(ROWS, dtype=torch.bool), mask, self.carry)
        before, after = tree.leaves(self.carry), tree.leaves(act.carry)
        return [i for i, (old, new) in enumerate(zip(before, after, strict=True)) if new is not old]

    def _act(
        self, features: Features, is_first: Tensor, mask: Tensor | None, carry: Features
    ) -> Act[Features, Features]:
        """Return actions [N, ..] for N observations, given `is_first` bool [N] and `mask` bool [N, A] or None."""
        seen = Observation(features, is_first, mask)
        return self.preprocessing.act(self.policy, seen, carry, deterministic=True, generator=torch.Generator())

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs, in the order of the arguments of `forward`."""
        memory = ["episode_start", *(f"state.{i:03d}" for i in range(len(self.state_indices)))]
        masks = ["action_mask"] if self.masks else []
        return [*_names(self.observation_space, "observation"), *masks, *(memory if self.state_indices else [])]

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs, in the order in which `forward` returns them."""
        states = [f"next_state.{i:03d}" for i in range(len(self.state_indices))]
        return [*_names(self.action_space, "action"), *states]

    def examples(self) -> tuple[Tensor, ...]:
        """Return example inputs for tracing, each [ROWS, ..]."""
        leaves = tree.leaves(self.carry)
        mask = [torch.ones(ROWS, self.masks, dtype=torch.bool)] if self.masks else []
        memory = [torch.ones(ROWS, dtype=torch.bool), *(leaves[i] for i in self.state_indices)]
        return (*tree.leaves(self.example), *mask, *(memory if self.state_indices else []))

    def random_inputs(self, generator: Generator) -> tuple[Tensor, ...]:
        """Return random inputs [B, ..] of the form of `examples`: observations, allowed actions, episode starts and states."""
        observation = random_actions(self.observation_space, ROWS, None, generator)
        pairs = zip(tree.leaves(self.example), tree.leaves(observation), strict=True)
        states = [tree.leaves(self.carry)[i] for i in self.state_indices]
        inputs = [drawn.to(example.dtype) for example, drawn in pairs]
        inputs += [self._random_mask(generator)] if self.masks else []
        inputs += [torch.rand(ROWS, generator=generator) < 0.5, *states] if states else []
        return tuple(torch.randn(e.shape, generator=generator) if e.is_floating_point() else e for e in inputs)

    def _random_mask(self, generator: Generator) -> Tensor:
        """Return masks bool [ROWS, A] that allow at least one value of every choice."""
        mask = torch.rand(ROWS, self.masks, generator=generator) < 0.5
        first = 0
        for size in choices_of(self.action_space):
            allowed = first + torch.randint(size, (ROWS,), generator=generator)
            mask[torch.arange(ROWS), allowed] = True
            first += size
        return mask

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        left = list(inputs)
        features = tree.map_tensors(lambda _: left.pop(0), self.example)
        mask = left.pop(0) if self.masks else None
        rows = tree.leaves(features)[0].shape[0]
        is_first = left.pop(0) if self.state_indices else torch.zeros(rows, dtype=torch.bool)
        stored = dict(zip(self.state_indices, left, strict=True))
        numbers = iter(range(len(tree.leaves(self.carry))))
        carry = tree.map_tensors(lambda leaf: cast("Tensor", stored.get(next(numbers), leaf)), self.carry)
        act = self._act(features, is_first, mask, carry)
        after = tree.leaves(act.carry)
        action = within_bounds(self.action_space, map_leaves(self.action_space, _in_own_dtype, act.action))
        return (*tree.leaves(action), *(after[i] for i in self.state_indices))


def _zeros(leaf: Space, rows: int) -> Tensor:
    zeros = torch.zeros(rows, *shape_of(leaf), dtype=getattr(torch, dtype_of(leaf)))
    return zeros + torch.tensor(leaf.start) if isinstance(leaf, Discrete | MultiDiscrete) else zeros


def _in_own_dtype(path: str, leaf: Space, action: Tensor) -> Tensor:
    """Return actions [N, ..] of a Box in its dtype, as `predict` does, or in float64 if torch does not have the dtype."""
    return action.to(getattr(torch, leaf.dtype, torch.float64)) if isinstance(leaf, Box) else action


def _names(space: Space, prefix: str) -> list[str]:
    """Return one name per leaf, in the order of `tree.leaves`."""
    if isinstance(space, Dict):
        return [name for key, child in sorted(space.spaces.items()) for name in _names(child, f"{prefix}.{key}")]
    if isinstance(space, Tuple):
        return [name for i, child in enumerate(space.spaces) for name in _names(child, f"{prefix}.{i}")]
    return [prefix]


def _modules(policy: object) -> list[nn.Module]:
    """Return the torch module of a policy inside its wrappers, in a list; an empty list if there is none."""
    while not isinstance(policy, nn.Module) and hasattr(policy, "inner"):
        policy = policy.inner
    return [policy] if isinstance(policy, nn.Module) else []


def export(
    agent: Agent | str | Path,
    path: str | Path,
    format: str = "onnx",  # noqa: A002  # the common name of this argument
    *,
    masks: bool | None = None,
    card: bool = True,
    results: Results | None = None,
) -> Exported:
    """Write the policy of an agent to a file, and a model card next to it. The policy accepts batches of any size.

    Args:
        agent: the agent whose policy is exported, or its file, or a run directory, of which the best agent is exported.
        path: the file to write. The suffix of the format is appended to a name without a suffix, or with a number as suffix,
            such as `run-0.5`.
        format: `onnx` (extra `export`) or `torch-export` (read with `torch.export.load`).
        masks: add an input for action masks. None: if the agent needs them, or was trained with those of an environment.
        card: write the card, a text in Markdown with the suffix .md (see `model_card`).
        results: the evaluation in the card; for a file of a run, by default that of the run.

    Raises:
        SettingsError: the format is unknown, the extra is missing, the agent ignores masks, keys of a Dict space give two
            inputs the same name, or the card would replace another text.
        ArtifactError: the file cannot be written.
        UsageError: the policy cannot be traced, or the traced policy acts differently from the agent.
        DivergenceError: a parameter of the policy is NaN, which the file could not report.
    """
    target = target_of(path, format)
    if not isinstance(agent, Agent):
        file = find_agent(Path(agent))
        agent, results = load(file), results or results_of(file)
    page = _page(target.with_suffix(".md")) if card else None
    module = _module(agent, masks)
    program = _traced(module)
    _require_agreement(program, module)
    write = _onnx if format == "onnx" else _torch
    data = write(program, module)
    write_whole(target, data)
    leaves = tree.leaves(module.carry)
    states = tuple(
        (str(leaves[i].dtype).removeprefix("torch."), tuple(leaves[i].shape[1:])) for i in module.state_indices
    )
    exported = Exported(target, tuple(module.input_names), tuple(module.output_names), states, page)
    if page is not None:
        write_whole(page, sealed(model_card(agent, _interface(exported), results=results)).encode())
    return exported


def _page(card: Path) -> Path | None:
    """The file to write a model card to; None, with a warning, if there is a card that somebody has edited.

    Raises:
        SettingsError: the card would replace a file that is not a model card.
    """
    text = card.read_bytes().decode(errors="replace") if card.exists() else None
    if text is None or not is_edited(text):
        return card
    if IN_CARDS not in text:
        raise SettingsError(f"the model card would replace {card}, which is another text; choose another file")
    warnings.warn(f"{card} was edited and stays as it is; move it away to get a new model card", stacklevel=3)
    return None


def target_of(path: str | Path, format: str) -> Path:  # noqa: A002  # the name that `export` uses
    """Return the file that `export` writes for `path`.

    Raises:
        SettingsError: the format is unknown, or the suffix belongs to another format, an agent file or a model card.
    """
    if format not in FORMATS:
        raise SettingsError(f"unknown format {format!r}; accepted: {', '.join(FORMATS)}")
    if Path(path).suffix in (".rlsdk", ".md"):
        raise SettingsError(f"{path} has the suffix of agents or model cards; name the file *{FORMATS[format]}")
    if format_of(path) not in (None, format):
        raise SettingsError(
            f"{path} has the suffix of {format_of(path)}, but the format is {format}; name the file *{FORMATS[format]}, or"
            " choose the other format"
        )
    suffix = Path(path).suffix
    named = suffix and not suffix[1:2].isdigit()  # `run-0.5` has no suffix
    return Path(path) if named else Path(f"{path}{FORMATS[format]}")


def _module(agent: Agent, masks: bool | None) -> ExportedPolicy:
    """Return the policy as a module for tracing.

    Raises:
        SettingsError: the agent does not use masks, or two inputs or outputs would have the same name.
    """
    twin = _twin(agent)
    if masks and not (twin.masks.used and twin.masks.rule.size):
        raise SettingsError(f"masks: {agent.spec.id} does not use action masks here; leave masks out")
    masks = agent.trains_with_masks if masks is None else masks
    module = ExportedPolicy(twin, masks=masks).eval().requires_grad_(False)
    for names in (module.input_names, module.output_names):
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise SettingsError(
                f"two inputs or outputs would have the name {twice[0]!r}, as keys are joined by dots; rename a key of the"
                " environment's Dict space"
            )
    return module


def format_of(path: str | Path | None) -> str | None:
    """Return the format of a file with this suffix; None for other suffixes."""
    suffix = "" if path is None else Path(path).suffix
    return next((name for name, own in FORMATS.items() if own == suffix), None)


def _twin(agent: Agent) -> Agent:
    """Return a copy of the agent on the CPU whose networks use only torch operations.

    Raises:
        DivergenceError: a parameter of the policy is NaN.
    """
    networks: Any = getattr(agent.config, "policy_kwargs", None)
    kernel = {"policy_kwargs": attrs.evolve(networks, kernel="autograd")} if hasattr(networks, "kernel") else {}
    twin = agent.acting_copy(device="cpu", **kernel)
    if any(bool(p.isnan().any()) for module in _modules(twin.policy) for p in module.parameters()):
        raise DivergenceError(
            "the policy cannot be exported: some of its weights are NaN; export a checkpoint from before it diverged"
        )
    return twin


def _traced(module: ExportedPolicy) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=1)
    examples = module.examples()
    shapes = (tuple({0: batch} for _ in examples),)
    try:
        with torch.no_grad(), _quiet():
            return torch.export.export(module, examples, dynamic_shapes=shapes, strict=False)
    except Exception as error:
        raise UsageError(
            f"the policy cannot be exported: {type(error).__name__}: {str(error).splitlines()[0]}; its `act` must be made of"
            " torch operations, without branches that depend on values or on the number of rows"
        ) from error


@torch.no_grad()
def _require_agreement(program: torch.export.ExportedProgram, module: ExportedPolicy) -> None:
    """Check that the traced program and the module return the same for random inputs.

    The outputs differ if the policy depends on something outside of the graph.

    Raises:
        UsageError: they differ.
    """
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        inputs = module.random_inputs(generator)
        for found, wanted in zip(program.module()(*inputs), module(*inputs), strict=True):
            if not torch.allclose(found.double(), wanted.double(), atol=TOLERANCE, rtol=TOLERANCE):
                raise UsageError(
                    "the exported policy gives other actions than the agent; its `act` must depend on its inputs alone"
                )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress torch's warnings about its internals, and the thread that monitors its progress bars, even hidden ones."""
    logger, bars = logging.getLogger("torch.onnx"), cast("Any", torch.hub).tqdm
    before, interval = logger.level, getattr(bars, "monitor_interval", None)
    logger.setLevel(logging.ERROR)
    if interval is not None:
        bars.monitor_interval = 0  # without an interval, no thread starts
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
        if interval is not None:
            bars.monitor_interval = interval


def _torch(program: torch.export.ExportedProgram, module: ExportedPolicy) -> bytes:
    stream = io.BytesIO()
    names = {"inputs.json": json.dumps(module.input_names), "outputs.json": json.dumps(module.output_names)}
    with _quiet():  # torch warns about weights that share storage; they are written completely
        torch.export.save(program, stream, extra_files=names)
    return stream.getvalue()


def _onnx(program: torch.export.ExportedProgram, module: ExportedPolicy) -> bytes:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise SettingsError(f"format 'onnx' needs more packages: {pip_install('rlsdk-interchange[export]')}") from None
    with contextlib.redirect_stdout(io.StringIO()), _quiet():  # the exporter prints its progress
        try:
            read, given = module.input_names, module.output_names
            made = torch.onnx.export(program, input_names=read, output_names=given, dynamo=True, verbose=False)
        except Exception as error:  # of many classes; the last lines have the reason
            reason = one_line(message_of(error.__cause__ or error), 200)
            raise UsageError(f"ONNX cannot hold the policy: {reason}; choose format='torch-export'") from error
    assert made is not None
    return bytes(made.model_proto.SerializeToString())


def _interface(exported: Exported) -> str:
    inputs, outputs = (", ".join(f"`{name}`" for name in names) for names in (exported.inputs, exported.outputs))
    text = f"## {exported.path.name}\n\nInputs: {inputs}. Outputs: {outputs}. The first axis is the batch.{_call(exported)}"
    if not exported.states:
        return text
    kinds = ", ".join(f"{dtype} [batch, {', '.join(map(str, shape))}]" for dtype, shape in exported.states)
    return f"{text}\nStates are {kinds}, zeros at first; `episode_start` is true at an episode's first step."


def _call(exported: Exported) -> str:
    """Return the lines of a program without rlsdk that calls a policy."""
    if exported.path.suffix == FORMATS["onnx"]:
        inputs = ", ".join(f'"{name}": {_variable(name)}' for name in exported.inputs)
        lines = (
            "import onnxruntime",
            f'policy = onnxruntime.InferenceSession("{exported.path.name}")',
            f"outputs = policy.run(None, {{{inputs}}})  # numpy arrays",
        )
    else:
        inputs = ", ".join(map(_variable, exported.inputs))
        lines = (
            "import torch",
            f'policy = torch.export.load("{exported.path.name}").module()',
            f"outputs = policy({inputs})  # torch tensors",
        )
    return "\n\n```python\n{}\n\n{}\n{}\n```\n".format(*lines)


def _variable(name: str) -> str:
    """Return a name of Python for an input."""
    return re.sub(r"\W", "_", name)
