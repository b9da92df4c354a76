"""Replays the step of environments that are written in torch as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

import torch
from torch import Generator, Tensor

from rlsdk import tree
from rlsdk.kernels import function_modes
from rlsdk_kernels.cuda_graphs import Capture, Captures, captured, same_objects, signature

InputsT = TypeVar("InputsT")
KeptT = TypeVar("KeptT")
TransientT = TypeVar("TransientT")


class GraphedTransition(Generic[InputsT, KeptT, TransientT]):
    """Calls a function `step(inputs, generator)` that changes tensors in place, and replays it once it was called a few times
    with tensors on a GPU.

    It returns two trees of tensors; the next call may overwrite those of the second. It is captured again when an attribute of
    the environment has changed, or after `forget`. So it is never replayed if each call changes an attribute.
    """

    def __init__(
        self, step: Callable[[InputsT, Generator], tuple[KeptT, TransientT]], env: object, generator: Generator
    ) -> None:
        """`step` draws from its generator only. Its in-place changes are to tensors whose memory stays the same."""
        self._step, self._env, self._generator = step, env, generator
        self.captures: Captures[tuple[KeptT, TransientT]] = Captures()
        self._attributes = self._values()

    def __call__(self, inputs: InputsT) -> tuple[KeptT, TransientT]:
        """Return the result of the step for a tree of tensors `inputs` [..]."""
        if function_modes() or torch.is_inference_mode_enabled():
            return self._step(inputs, self._generator)
        attributes = self._values()
        if not same_objects(attributes, self._attributes):
            self._attributes = attributes
            self.forget()
        capture = self.captures.get(signature(inputs), lambda: self._capture(inputs))
        return self._step(inputs, self._generator) if capture is None else capture.replay(tree.leaves(inputs))

    def forget(self) -> None:
        """Capture the step again before it is replayed."""
        self.captures = Captures()

    def _values(self) -> list[object]:
        return list(getattr(self._env, "__dict__", {}).values())

    def _capture(self, inputs: InputsT) -> Capture[tuple[KeptT, TransientT]]:
        """Raises RuntimeError if the step does something that a graph cannot do."""
        own = tree.map_tensors(Tensor.clone, inputs)
        leaves = tree.leaves(own)
        # a failed capture spoils its generator, so the first one has a generator of its own
        for generator in (Generator(leaves[0].device), self._generator):
            capture = captured(partial(self._leaves_of, own, generator), leaves, [], generator)
        return capture

    def _leaves_of(
        self, inputs: InputsT, generator: Generator
    ) -> tuple[list[Tensor], Callable[[list[Tensor]], tuple[KeptT, TransientT]]]:
        kept, transient = self._step(inputs, generator)
        build = tree.layout(kept).build
        return tree.leaves(kept), lambda leaves: (build(iter(leaves)), transient)
