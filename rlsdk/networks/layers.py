"""Layers that networks share: dense layers, ensembles, dueling heads, initialization, training modes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter, is_

import torch
from torch import Tensor, nn

from rlsdk.errors import SettingsError, UsageError, shown
from rlsdk.kernels import KernelSlot, factory, is_hooked
from rlsdk.kernels.protocol import is_dense
from rlsdk.kernels.reference import Differentiable, TorchLayers
from rlsdk.kernels.structure import SeededDraws
from rlsdk.runtime.process import derive, limited_threads


class Layers:
    """Calls children of a network one after another, [N, I] -> [N, O], as `nn.Sequential` does.

    On the CPU, compiled code evaluates linear layers of float32 with ReLU or tanh between them, and computes their gradients.
    Torch calls all other layers, and those with hooks. Results differ from torch's by rounding only.

    Make it after the children. It is not a module, so names in the `state_dict` do not change. Children may be replaced
    later, and a copy of the network calls its own children::

        class Network(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.body, self.head = mlp(4, (64, 64), "tanh"), nn.Linear(64, 2)
                self._values = Layers(self, "body", "head")

            def forward(self, observation: Tensor) -> Tensor:
                return self._values(observation)
    """

    def __init__(self, network: nn.Module, *names: str) -> None:
        """`names` are the names of the children, in the order of the calls.

        Raises:
            UsageError: there is no name, or the network has no child with one of the names.
        """
        known = [name for name, _ in network.named_children()]
        wrong = ", ".join(repr(name) for name in names if name not in known)
        if wrong or not names:
            raise UsageError(
                f"Layers: {f'there is no child {wrong}' if wrong else 'no name was given'}; give names of children of"
                f" {type(network).__name__}: {', '.join(known) or 'it has none yet, so make them first'}"
            )
        self._network, self._names = network, names
        self._kernel = KernelSlot(self._make, network, only=names)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the outputs [N, O] for inputs [N, I]. If autograd is on, they have a graph."""
        return self._kernel()(x)

    def evaluate(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor | None]]:
        """Return (outputs [N, O] without graph, vjp) for inputs [N, I]. For small batches it is faster than autograd.

        `vjp(grad)` takes the gradient of a loss with respect to the outputs, [N, O]. It adds the gradients with respect to the
        parameters to their `grad`, and returns that with respect to the inputs, [N, I]; None if the inputs require none. Call
        it once, before parameters, inputs or outputs change.
        """
        return self._kernel().evaluate(x)

    def _children(self) -> list[nn.Module]:
        return [self._network.get_submodule(name) for name in self._names]

    def _by_modules(self, x: Tensor) -> Tensor:
        return factory.sequential(self._children(), x)

    def _make(self, hooked: bool) -> Differentiable:
        modules = [module for child in self._children() for module in _flat(child)]
        return factory.differentiable_dense(modules, hooked, TorchLayers(self._by_modules))


def _flat(module: nn.Module) -> Iterator[nn.Module]:
    """The modules that an `nn.Sequential` calls, also those inside others."""
    if type(module) is not nn.Sequential:
        yield module
    else:
        for child in module:
            yield from _flat(child)


_MODULES: dict[str, type[nn.Module]] = {
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "identity": nn.Identity,
    "leaky_relu": nn.LeakyReLU,
    "relu": nn.ReLU,
    "selu": nn.SELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}


def activation(choice: str | Callable[[], nn.Module]) -> nn.Module:
    """Create an activation module from a name or from the user's own class.

    Raises:
        SettingsError: the user's class needs arguments, or does not create a module.
    """
    if isinstance(choice, str):
        return _MODULES[choice]()
    advice = "give a class such as torch.nn.Mish, or a function without arguments that makes a module"
    try:
        found: object = choice()
    except Exception as error:  # code of the user
        problem = " ".join(str(error).split())
        raise SettingsError(f"activation_fn {choice!r} cannot be made: {problem}; {advice}") from None
    if not isinstance(found, nn.Module):
        raise SettingsError(f"activation_fn {choice!r} makes {shown(found, 40)}, not a module; {advice}")
    return found


def mlp(
    inputs: int, widths: Sequence[int], activation_fn: str | Callable[[], nn.Module], *, bias: bool = True
) -> nn.Sequential:
    """Build hidden layers only: a linear layer and an activation per width. The output has `widths[-1]` (or `inputs`)
    features."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Linear(inputs, width, bias=bias), activation(activation_fn)]
        inputs = width
    return nn.Sequential(*layers)


is_trained, _grad = attrgetter("requires_grad"), attrgetter("grad")


def views_of(flat: Tensor, parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    """Divide a vector [D] into consecutive segments with the shapes of the parameters, in their order."""
    chosen = list(parameters)
    # views, not copies: parameters and vector are the same memory
    segments = torch.split(flat, [parameter.numel() for parameter in chosen])
    return [segment.view(parameter.shape) for segment, parameter in zip(segments, chosen, strict=True)]


def flatten_parameters(parameters: Iterable[nn.Parameter]) -> tuple[Tensor, Tensor]:
    """Move the parameters, and their gradients, into two flat float buffers [D]; returns (values, gradients).

    The parameters become views: `load_state_dict`, `state_dict` and autograd work as before, and `backward` accumulates
    into the gradient buffer. Contiguous views also avoid a bug of torch's fused Adam on CPU. It computes wrong updates
    if the strides of a gradient differ from those of its parameter.
    """
    chosen = list(parameters)
    if not chosen:
        return torch.zeros(0), torch.zeros(0)
    # `cat` copies before the parameters are redirected, so that parameters which share memory stay whole
    values = torch.cat([p.detach().reshape(-1) for p in chosen])
    gradients = torch.zeros_like(values)
    for parameter, own, grad in zip(chosen, views_of(values, chosen), views_of(gradients, chosen), strict=True):
        parameter.data, parameter.grad = own, grad
    return values, gradients


class FlatParameters:
    """Parameters that are views of one vector. If one gets other memory or another layout, `zero_grad` makes it a view again.

    Frozen parameters (`requires_grad_(False)`) do not change, however the gradients were computed.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.values, self.gradients = flatten_parameters(self.parameters)
        self._note()

    def _note(self) -> None:
        self._places = list(map(Tensor.data_ptr, self.parameters))
        self._grads = [parameter.grad for parameter in self.parameters]

    def zero_grad(self) -> None:
        """Set the gradients in the vector to 0. Call it before the forward pass, or `clear` instead.

        Parameters that `p.data = ...`, `zero_grad()` or `to()` removed from the vector become views of it again.
        """
        self.renew_views()
        self.clear()

    def clear(self) -> None:
        """The same as `zero_grad`, except for parameters that keep their memory in another layout."""
        # addresses are compared, because `p.data = ..` leaves the parameter object the same
        if self._places != list(map(Tensor.data_ptr, self.parameters)) or False in map(
            is_, map(_grad, self.parameters), self._grads
        ):
            self._attach()
        self.gradients.zero_()

    def renew_views(self) -> None:
        """Make parameters in another layout, as after `p.data = p.data.T`, views of the vector again.

        It overwrites their memory, which a backward pass may still read.
        """
        if False in map(Tensor.is_contiguous, self.parameters):
            self._attach()

    @torch.no_grad()
    def _attach(self) -> None:
        """Raises UsageError if parameters have another dtype, device or shape than before."""
        size, kind = sum(map(Tensor.numel, self.parameters)), (self.values.dtype, self.values.device)
        # checked here, because compiled steps read the vector without checks
        if size != len(self.values) or any((p.dtype, p.device) != kind for p in self.parameters):
            raise UsageError(
                "parameters of the policy were given another dtype, device or shape, in which they cannot be trained; undo it"
                " (policy.float()), and choose the device when the agent is made or loaded"
            )
        for parameter, view in zip(self.parameters, views_of(self.values, self.parameters), strict=True):
            if parameter.data_ptr() != view.data_ptr() or not parameter.is_contiguous():
                view.copy_(parameter.clone())  # it may lie in the memory of the view
                parameter.data = view
        for parameter, grad in zip(self.parameters, views_of(self.gradients, self.parameters), strict=True):
            parameter.grad = grad
        self._note()

    def frozen(self) -> list[nn.Parameter]:
        """Return the parameters that must not change, and set their gradients to 0."""
        found = [parameter for parameter in self.parameters if not parameter.requires_grad]
        for parameter in found:
            if parameter.grad is not None:
                parameter.grad.zero_()
        return found

    def frozen_entries(self) -> Tensor | None:
        """bool [D], True for entries that must not change, whose gradients are set to 0; None if all parameters are trained."""
        found = set(map(id, self.frozen()))
        if not found:
            return None
        return torch.cat([torch.full((p.numel(),), id(p) in found, device=p.device) for p in self.parameters])


class EnsembleLinear(nn.Module):
    """`members` linear layers in parallel: [C, N, inputs] -> [C, N, outputs]; each initialized like `nn.Linear`."""

    is_ensemble_linear = True  # `rlsdk.kernels` recognizes the layer by it

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        # the bound that `nn.Linear` has for weights and biases, so that members equal single networks
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """[C, N, inputs] -> [C, N, outputs]."""
        return torch.baddbmm(self.bias, x, self.weight)


class EnsembleMLP(nn.Module):
    """`members` perceptrons with the same shape and different weights: [N, inputs] -> [C, N, outputs]."""

    def __init__(
        self,
        members: int,
        inputs: int,
        widths: Sequence[int],
        outputs: int,
        activation_fn: str | Callable[[], nn.Module],
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in widths:
            layers += [EnsembleLinear(members, inputs, width), activation(activation_fn)]
            inputs = width
        self.layers = nn.Sequential(*layers, EnsembleLinear(members, inputs, outputs))
        self.members = members

    def forward(self, x: Tensor) -> Tensor:
        # expanded without a copy: every member reads the same inputs
        result: Tensor = self.layers(x.unsqueeze(0).expand(self.members, -1, -1))
        return result

    def first(self, x: Tensor) -> Tensor:
        """Evaluate only the first member, [N, inputs] -> [N, outputs]."""
        if not is_dense(list(self.layers)):
            first: Tensor = self(x)[0]
            return first
        for layer in self.layers:
            x = torch.addmm(layer.bias[0], x, layer.weight[0]) if isinstance(layer, EnsembleLinear) else layer(x)
        return x


@contextmanager
def initialization(seed: int) -> Iterator[None]:
    """Make networks that are built inside the `with` block get their random weights from `seed` alone.

    Random numbers of other threads have no effect. torch's global generator is neither read nor changed. The caller's
    gradient and inference modes have no effect.

    Torch uses one thread inside the block. With two, the QR decomposition of a 256 x 256 matrix takes 380 ms instead of
    2 ms if another program uses the second core.
    """
    # the name is part of the seed: in another spelling, the same seed would give other weights
    draws = SeededDraws(derive(seed, "initialisation"))
    # parameters made in inference mode could never be trained
    with torch.inference_mode(False), torch.enable_grad(), limited_threads(1), draws:
        yield


@torch.no_grad()
def orthogonal(part: nn.Module, gain: float) -> None:
    """Set orthogonal weights and zero biases in linear layers and convolutions. Other modules are not changed."""
    for module in part.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.orthogonal_(module.weight, gain)
            if module.bias is not None:
                module.bias.zero_()


SWITCHED = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.LazyBatchNorm1d, nn.LazyBatchNorm2d, nn.LazyBatchNorm3d),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
    *(nn.LazyInstanceNorm1d, nn.LazyInstanceNorm2d, nn.LazyInstanceNorm3d),
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout, nn.RReLU),
)
"""Layers whose output differs in training mode."""


def has_train_mode(*modules: nn.Module | None) -> bool:
    """Whether switching between `train()` and `eval()` can change an output: batch norm, dropout, hooks, or an unknown
    module.

    Other networks are never switched, because visiting the modules of a small network takes longer than its forward
    pass.
    """
    return any(_depends(module) for root in modules if root is not None for module in root.modules())


def _depends(module: nn.Module) -> bool:
    # hooks may read `training`, with an unknown effect
    if isinstance(module, SWITCHED) or is_hooked(module):  # spectral_norm is a hook
        return True
    if isinstance(rate := vars(module).get("dropout"), float) and rate:  # of recurrent layers and attention
        return True
    # a module of a user may depend on the mode, so it is switched to be safe
    return not type(module).__module__.startswith(("torch.nn.modules.", "rlsdk."))


def architecture(*networks: nn.Module) -> list[str]:
    """Describe classes with their arguments, names and shapes. Networks with equal descriptions can exchange weights."""
    found = []
    for network in networks:
        for name, module in network.named_modules():
            kind = type(module)
            # `extra_repr` of users may hold addresses or change from call to call
            arguments = module.extra_repr() if kind.__module__.startswith("torch.nn.modules.") else ""
            found.append(f"{name}: {kind.__module__}.{kind.__qualname__}({arguments})")
            tensors = chain(module.named_parameters(recurse=False), module.named_buffers(recurse=False))
            found += [f"{name}.{own} {tuple(value.shape)} {value.dtype}" for own, value in tensors]
    return found


# The dueling head: values of actions from a value of the observation and advantages.
#
# Source: Wang et al. 2016, arXiv:1511.06581, equation 9.


class DuelingHead(nn.Module):
    """Computes Q(s, a) = V(s) + A(s, a) - mean over a' of A(s, a') for each choice: features [N, F] -> [N, A * K]."""

    def __init__(self, inputs: int, sizes: Sequence[int], values_per_action: int = 1) -> None:
        """`sizes` are the numbers of values of each choice, A in total; `values_per_action` is K."""
        super().__init__()
        self.sizes, self.values_per_action = tuple(sizes), values_per_action
        self.value = nn.Linear(inputs, len(self.sizes) * values_per_action)
        self.advantage = nn.Linear(inputs, sum(self.sizes) * values_per_action)

    def forward(self, features: Tensor) -> Tensor:
        rows = features.shape[0]  # `len` would fix the number of rows of an exported policy
        values = self.value(features).view(rows, len(self.sizes), 1, self.values_per_action)
        advantages = self.advantage(features).view(rows, -1, self.values_per_action).split(self.sizes, 1)
        found = [values[:, i] + own - own.mean(1, keepdim=True) for i, own in enumerate(advantages)]
        return torch.cat(found, 1).flatten(1)
