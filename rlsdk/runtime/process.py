"""The choice of the torch device that trains."""

from __future__ import annotations

import warnings

import torch

from rlsdk.errors import SettingsError


def choose_device(wanted: str, policy: str, environments: str = "cpu") -> tuple[str, str]:
    """(device, reason) for the setting `wanted`. `auto` chooses an accelerator only for image policies, and if the device
    `environments` is one: many small networks train faster on the CPU, where the same seed also gives the same weights.

    Raises:
        SettingsError: this machine has no such device.
    """
    if torch.cuda.is_available():
        # weights are views of the vector of all parameters, so torch copies them for cuDNN; its advice would undo that
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk", UserWarning)
    if wanted == "auto":
        if not torch.cuda.is_available():
            return "cpu", "no accelerator is available"
        if environments != "cpu":
            return environments, "the environments are on this device"
        if policy.startswith("Cnn"):
            return "cuda", "image policies train faster on the accelerator"
        return "cpu", f"many networks of {policy} train faster on the CPU; compare with device='cuda'"
    try:
        device = torch.device(wanted)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise SettingsError(f"device {wanted!r} cannot be used here: {reason}; try 'auto' or 'cpu'") from None
    if device.type == "meta":
        raise SettingsError("device 'meta' holds no data; try 'auto' or 'cpu'")
    return str(device), "by the setting device"


def is_same(one: str, other: str) -> bool:
    """Whether two names mean one device: `cuda` is the GPU that torch uses by default."""
    return one == other or _numbered(one) == _numbered(other)


def _numbered(name: str) -> torch.device:
    device = torch.device(name)
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", torch.cuda.current_device())
