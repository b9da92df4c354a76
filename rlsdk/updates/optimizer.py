"""One optimiser call for a whole network, over its flat parameter buffer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rlsdk.errors import SettingsError
from rlsdk.networks.flat import flatten_parameters

_CLASSES: dict[str, type[torch.optim.Optimizer]] = {
    "adadelta": torch.optim.Adadelta,
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
    "adamax": torch.optim.Adamax,
    "adamw": torch.optim.AdamW,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}
_FUSED = ("adagrad", "adam", "adamw", "sgd")


def adam_arguments(choice: object, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`arguments` of an optimiser; Adam's epsilon is 1e-5 for on-policy algorithms, as documented, unless it is given."""
    return {"eps": 1e-5, **arguments} if choice == "adam" else dict(arguments)


class FlatOptimizer:
    """An element-wise torch optimiser over all `parameters` as one vector.

    Gradients are accumulated by `backward` into one flat buffer: call `zero_grad`, then `backward`, then `step`.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        choice: str | Callable[..., torch.optim.Optimizer],
        learning_rate: float,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Raises SettingsError when the optimiser does not take `arguments`."""
        values, self.gradients = flatten_parameters(parameters)
        self.flat = nn.Parameter(values)
        self.flat.grad = self.gradients
        options: dict[str, Any] = {"lr": learning_rate, **(arguments or {})}
        if isinstance(choice, str) and choice in _FUSED:
            options.setdefault("fused", values.numel() > 0 and values.is_floating_point())
        make: Callable[..., torch.optim.Optimizer] = _CLASSES[choice] if isinstance(choice, str) else choice
        try:
            self.optimizer = make([self.flat], **options)
        except (TypeError, ValueError) as error:
            raise SettingsError(f"optimizer_kwargs {dict(arguments or {})} do not fit {choice}: {error}") from None
        group = self.optimizer.param_groups[0]
        variants = group.get("amsgrad") or group.get("decoupled_weight_decay")
        self._is_adam = choice == "adam" and bool(group["fused"]) and not variants

    def zero_grad(self) -> None:
        self.gradients.zero_()

    def step(self, learning_rate: float, max_norm: float | None = None) -> None:
        """Apply the accumulated gradients; with `max_norm` they are scaled down to that global norm first."""
        if max_norm is not None:
            norm = torch.linalg.vector_norm(self.gradients)
            self.gradients.mul_((max_norm / (norm + 1e-6)).clamp_(max=1.0))
        self.optimizer.param_groups[0]["lr"] = learning_rate
        moments = self.optimizer.state.get(self.flat)
        if self._is_adam and moments:
            self._adam(moments, self.optimizer.param_groups[0])
        else:
            self.optimizer.step()

    @torch.no_grad()
    def _adam(self, moments: dict[str, Tensor], options: dict[str, Any]) -> None:
        """What the fused `torch.optim.Adam.step` comes down to for one tensor, without its preparations, which cost more
        than the arithmetic of a small network."""
        moments["step"] += 1
        torch._fused_adam_(
            [self.flat],
            [self.gradients],
            [moments["exp_avg"]],
            [moments["exp_avg_sq"]],
            [],
            [moments["step"]],
            lr=options["lr"],
            beta1=options["betas"][0],
            beta2=options["betas"][1],
            weight_decay=options["weight_decay"],
            eps=options["eps"],
            amsgrad=False,
            maximize=options["maximize"],
        )

    def state_dict(self) -> dict[str, Any]:
        """The optimiser's moments and step count; the parameters themselves belong to their network."""
        state = self.optimizer.state.get(self.flat, {})
        return {name: value.clone() if isinstance(value, Tensor) else value for name, value in state.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises ValueError when the state is not one of this optimiser: its step reads memory without looking."""
        for name, value in state.items():
            if (
                isinstance(value, Tensor)
                and value.dim()
                and (value.shape, value.dtype) != (self.flat.shape, self.flat.dtype)
            ):
                raise ValueError(
                    f"the optimiser's {name!r} is {value.dtype} {tuple(value.shape)}, not {tuple(self.flat.shape)}"
                )
        if self._is_adam and state:
            shapes = {name: value.dim() if isinstance(value, Tensor) else None for name, value in state.items()}
            if shapes != {"step": 0, "exp_avg": 1, "exp_avg_sq": 1} or state["step"].dtype != torch.float32:
                raise ValueError(f"the optimiser's state {sorted(state)} is not that of Adam")
        moments = {name: value.clone() if isinstance(value, Tensor) else value for name, value in state.items()}
        self.optimizer.state.clear()
        if moments:
            self.optimizer.state[self.flat] = moments
