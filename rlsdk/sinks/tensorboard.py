"""Metrics for TensorBoard (extra `tensorboard`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlsdk.errors import SettingsError


class TensorBoardSink:
    """Writes scalars, hyper-parameters and histograms to `folder`/`name`_1, _2, ...: each run gets the next number."""

    def __init__(self, folder: Path, name: str, *, continue_last: bool = False) -> None:
        """Raises SettingsError when the tensorboard package is not installed."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise SettingsError(
                "tensorboard_log needs the tensorboard package: pip install rlsdk[tensorboard]"
            ) from None
        if "\0" in str(folder):
            raise SettingsError(f"tensorboard_log = {str(folder)!r} names no folder")
        numbers = [int(tail) for p in folder.glob(f"{name}_*") if (tail := p.name.rpartition("_")[2]).isdigit()]
        last = max(numbers, default=0)
        self.path = folder / f"{name}_{last if continue_last and last else last + 1}"
        self._writer = SummaryWriter(str(self.path))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def hyperparameters(self, values: Mapping[str, Any]) -> None:
        """Show the settings in the tab of hyper-parameters, beside the mean return."""
        from torch.utils.tensorboard.summary import hparams

        make: Any = hparams
        writer: Any = self._writer.file_writer
        for summary in make(dict(values), {"rollout/ep_rew_mean": 0.0}):
            writer.add_summary(summary)  # `add_hparams` would start another run for them

    def histograms(self, step: int, tensors: Mapping[str, Any]) -> None:
        """One histogram per tensor."""
        for name, tensor in tensors.items():
            self._writer.add_histogram(f"parameters/{name}", tensor, step)

    def close(self) -> None:
        self._writer.close()
