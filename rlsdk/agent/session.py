"""A session: it acts on observations with the policy of an agent and stores the policy's state between steps."""

from __future__ import annotations

import numpy as np
import torch
from torch import Generator

from rlsdk.environments.adapters.actions import ActionDecoder
from rlsdk.environments.adapters.masks import MaskValidator
from rlsdk.environments.adapters.observations import ObservationBatcher, batch_of
from rlsdk.errors import ObservationError
from rlsdk.interfaces import Policy
from rlsdk.preprocessing import Preprocessing
from rlsdk.records import Act, Observation
from rlsdk.runtime.seeding import checked_seed
from rlsdk.spaces import Actions
from rlsdk.tree import map_tensors


class Session:
    """Acts for `n` environments at a time. `act` takes numpy observations; call `ended` for episodes that have ended.

    >>> session = agent.session(1)                     # doctest: +SKIP
    >>> action = session.act(observation)              # doctest: +SKIP
    >>> session.ended(terminated or truncated)         # doctest: +SKIP
    """

    def __init__(
        self,
        policy: Policy[object, object],
        preprocessing: Preprocessing,
        n: int,
        *,
        deterministic: bool,
        seed: int,
        masks: MaskValidator,
    ) -> None:
        context = preprocessing.context
        self.policy, self.preprocessing, self.context, self.n, self.masks = policy, preprocessing, context, n, masks
        self.deterministic, self.generator = deterministic, Generator(device=context.device)
        self.generator.manual_seed(checked_seed(seed))
        self.decode, self._stack = ActionDecoder(context.action_space), ObservationBatcher(context.observation_space)
        self.reset()

    def reset(self) -> None:
        """Reset the policy's state: every environment begins a new episode."""
        self.carry = self.preprocessing.initial_carry(self.policy, self.n)
        self.is_first = torch.ones(self.n, dtype=torch.bool)

    def ended(self, done: object) -> None:
        """Mark the environments whose episode has ended, bool [n] or one bool; their next observation begins an episode."""
        self.is_first = self.is_first | torch.as_tensor(np.broadcast_to(np.asarray(done, dtype=bool), (self.n,)).copy())

    def act(self, observation: object, action_masks: object = None) -> Actions:
        """The actions for `n` observations stacked along the first dimension; with n = 1, a single observation without that
        dimension is accepted too and gives a single action.

        Raises:
            ObservationError: the observations do not fit the space, or are not `n`. MaskError: a required mask is missing, or
            a mask has the wrong length or allows no action.
        """
        rows, single = batch_of(self.context.observation_space, observation)
        if len(rows) != self.n:
            raise ObservationError(f"this session acts for {self.n} environments, got {len(rows)} observations")
        mask = self.masks.of(action_masks, self.n)
        actions = self.decode(self.act_on(Observation(self._stack(rows), self.is_first, mask)).action)
        return actions[0] if single else actions

    def action_on(self, observation: Observation) -> torch.Tensor:
        """The actions of `act_on`, [n] or [n, A], on the CPU."""
        return map_tensors(lambda leaf: leaf.cpu(), self.act_on(observation).action)

    def act_on(self, observation: Observation) -> Act[object, object]:
        """The output of the policy for an `Observation`; the session stores its carry for the next step."""
        device = self.context.device
        there = device == "cpu" and observation.is_first.is_cpu
        moved = observation if there else map_tensors(lambda leaf: leaf.to(device), observation)
        carry = self._begun(moved.is_first)
        act = self.preprocessing.act(
            self.policy, moved, carry, deterministic=self.deterministic, generator=self.generator
        )
        self.carry = act.carry
        self.is_first = torch.zeros(self.n, dtype=torch.bool)
        return act

    def _begun(self, first: torch.Tensor) -> object:
        """The carry, after `begin_rollout` in environments where an episode begins (gSDE samples new matrices then).

        `first` bool [n] marks these environments.
        """
        if not bool(first.any()):
            return self.carry
        begun = self.preprocessing.begin_rollout(self.policy, self.carry)
        if begun is self.carry:
            return begun

        def chosen(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
            return torch.where(first.view(-1, *(1,) * (old.dim() - 1)), new, old)

        return map_tensors(chosen, begun, self.carry)
