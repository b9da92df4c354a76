"""Whether a network behaves differently in training and in evaluation."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm


def has_train_mode(*modules: nn.Module | None) -> bool:
    """True if switching between `train()` and `eval()` can change an output: batch norm, dropout, or a module of unknown kind.

    Networks for which it cannot are never switched; walking the modules of a small network costs more than its forward.
    """
    return any(_depends(module) for root in modules if root is not None for module in root.modules())


def _depends(module: nn.Module) -> bool:
    if isinstance(module, _BatchNorm | _DropoutNd | _InstanceNorm):
        return True
    if module._forward_hooks or module._forward_pre_hooks:
        return True  # such as spectral_norm's
    return not type(module).__module__.startswith(("torch.nn.modules.", "rlsdk."))
