"""Replays the acting of a policy as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Generator, Tensor, nn

from rlsdk import tree
from rlsdk.kernels import function_modes
from rlsdk.records import Observation
from rlsdk_kernels.choice import Acts, AnyAct
from rlsdk_kernels.cuda_graphs import Capture, Captures, addresses, captured, same_objects, signature, tables_of


class GraphedActing:
    """Calls a function that acts, and replays it once it was called a few times with observations on a GPU.

    The function is captured again when parameters have other memory, or when an attribute of the network has changed.
    """

    def __init__(self, act: Acts, network: nn.Module) -> None:
        """`network` computes the actions. Its modules stay the same, and none of them has hooks."""
        self._act, self._network = act, network
        self._tables = tables_of([network])
        self._addresses: list[int] = []
        self._attributes: list[object] = []
        self.captures: Captures[AnyAct] = Captures()

    def __call__(self, observation: Observation, carry: object, deterministic: bool, generator: Generator) -> AnyAct:
        if not self._may_replay(observation):
            return self._act(observation, carry, deterministic, generator)
        self._forget_if_changed()
        inputs = observation, carry
        key = signature(inputs), None if deterministic else generator
        capture = self.captures.get(key, lambda: self._capture(inputs, deterministic, generator))
        if capture is None:
            return self._act(observation, carry, deterministic, generator)
        return capture.replay(tree.leaves(inputs))

    @staticmethod
    def _may_replay(observation: Observation) -> bool:
        return observation.is_first.is_cuda and not function_modes() and not torch.is_inference_mode_enabled()

    def _forget_if_changed(self) -> None:
        found, attributes = list(addresses(self._tables)), list(vars(self._network).values())
        if not same_objects(attributes, self._attributes) or found != self._addresses:
            self._addresses, self._attributes, self.captures = found, attributes, Captures()

    def _capture(
        self, inputs: tuple[Observation, object], deterministic: bool, generator: Generator
    ) -> Capture[AnyAct]:
        """Raises RuntimeError if the function does something that a graph cannot do."""
        observation, carry = own = tree.map_tensors(Tensor.clone, inputs)
        leaves = tree.leaves(own)
        # a failed capture spoils its generator, so the first one has a generator of its own
        for source in (Generator(leaves[0].device), generator):
            act = partial(self._act, observation, carry, deterministic, source)
            capture = captured(partial(_leaves_of, act), leaves, [], source)
        return capture


def _leaves_of(act: Callable[[], AnyAct]) -> tuple[list[Tensor], Callable[[list[Tensor]], AnyAct]]:
    """The tensors [..] of an act, and the function that builds acts of such tensors."""
    done = act()
    build = tree.layout(done).build
    return tree.leaves(done), lambda leaves: build(iter(leaves))
