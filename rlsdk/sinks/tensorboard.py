"""Metrics for TensorBoard (extra `tensorboard`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlsdk.errors import SettingsError
from rlsdk.sinks.media import Figure, HParam, Image, Video
from rlsdk.sinks.place import made, unwritable


class TensorBoardSink:
    """Writes metrics, settings and media to `folder/name_1`, `folder/name_2`, ...: each run gets the next number."""

    format = "tensorboard"

    def __init__(self, folder: Path, name: str, *, continue_last: bool = False) -> None:
        """Raises SettingsError when the tensorboard package is not installed."""
        if "\0" in str(folder):
            raise SettingsError(f"tensorboard_log = {str(folder)!r} names no folder")
        made(folder)
        numbers = [int(tail) for p in folder.glob(f"{name}_*") if (tail := p.name.rpartition("_")[2]).isdigit()]
        last = max(numbers, default=0)
        self.path = folder / f"{name}_{last if continue_last and last else last + 1}"
        self._writer: Any = _summary_writer(self.path)

    @classmethod
    def in_folder(cls, folder: Path) -> TensorBoardSink:
        """A sink that writes into `folder` itself."""
        sink = cls.__new__(cls)
        sink.path, sink._writer = folder, _summary_writer(folder)
        return sink

    @property
    def writer(self) -> Any:
        """torch's `SummaryWriter`, opened again after it was closed."""
        if self._writer is None:
            self._writer = _summary_writer(self.path)
        return self._writer

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def hyperparameters(self, values: Mapping[str, object]) -> None:
        """Show the settings in the tab of hyper-parameters, beside the mean return."""
        self._hparams(values, {"rollout/ep_rew_mean": 0.0})

    def _hparams(self, settings: Mapping[str, object], metrics: Mapping[str, float]) -> None:
        from torch.utils.tensorboard.summary import hparams

        make: Any = hparams
        for summary in make(dict(settings), dict(metrics)):
            self.writer.file_writer.add_summary(summary)  # `add_hparams` would start another run for them

    def media(self, step: int, values: Mapping[str, object]) -> list[str]:
        """Show texts, pictures, figures, videos, hyper-parameters and histograms; returns the names of those shown."""
        return [name for name, value in values.items() if self._show(name, value, step)]

    def _show(self, name: str, value: object, step: int) -> bool:
        if isinstance(value, str):
            self.writer.add_text(name, value, step)
        elif isinstance(value, Image):
            self.writer.add_image(name, value.image, step, dataformats=value.dataformats)
        elif isinstance(value, Figure):
            self.writer.add_figure(name, value.figure, step, close=value.close)
        elif isinstance(value, Video):
            self.writer.add_video(name, value.frames, step, fps=value.fps)
        elif isinstance(value, HParam):
            self._hparams(value.hparam_dict, value.metric_dict)
        elif hasattr(value, "shape"):
            self.writer.add_histogram(name, value, step)
        else:
            return False
        return True

    def histograms(self, step: int, tensors: Mapping[str, object]) -> None:
        """One histogram per tensor."""
        for name, tensor in tensors.items():
            self.writer.add_histogram(f"parameters/{name}", tensor, step)

    def flush(self) -> None:
        """Write waiting values to disk."""
        self.writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _summary_writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise SettingsError("tensorboard_log needs the tensorboard package: pip install rlsdk[tensorboard]") from None
    try:
        return SummaryWriter(str(folder))
    except OSError as error:
        raise unwritable(folder, error) from None
