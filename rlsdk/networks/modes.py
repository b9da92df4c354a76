"""Detects networks whose output differs between training and evaluation mode."""

from __future__ import annotations

from torch import nn

from rlsdk.kernels import is_hooked

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
    if isinstance(module, SWITCHED) or is_hooked(module):  # spectral_norm is a hook
        return True
    if isinstance(getattr(module, "dropout", None), float) and module.dropout:  # of recurrent layers and attention
        return True
    return not type(module).__module__.startswith(("torch.nn.modules.", "rlsdk."))
