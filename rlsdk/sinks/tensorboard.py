"""A sink that writes metrics for TensorBoard. It needs the extra `tensorboard`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlsdk.errors import SettingsError
from rlsdk.runtime.pip_commands import pip_install
from rlsdk.sinks.media import Figure, HParam, Image, Video
from rlsdk.sinks.place import made, unwritable


class TensorBoardSink:
    """Writes metrics, settings and media to `folder/name_1`, `folder/name_2`, ...: each run uses the next free number.

    With `continue_last` it writes to the existing folder with the highest number.
    """

    format = "tensorboard"

    def __init__(self, folder: Path, name: str, *, continue_last: bool = False) -> None:
        """Raises SettingsError if the tensorboard package is not installed or `folder` contains a null character."""
        if "\0" in str(folder):
            raise SettingsError(f"tensorboard_log = {str(folder)!r} names no folder")
        made(folder)
        numbers = [int(tail) for p in folder.glob(f"{name}_*") if (tail := p.name.rpartition("_")[2]).isdigit()]
        last = max(numbers, default=0)
        self.path = folder / f"{name}_{last if continue_last and last else last + 1}"
        self._writer: Any = _summary_writer(self.path)

    @classmethod
    def in_folder(cls, folder: Path) -> TensorBoardSink:
        """Return a sink that writes into `folder` itself, not into a numbered folder in it."""
        sink = cls.__new__(cls)
        sink.path, sink._writer = folder, _summary_writer(folder)
        return sink

    @property
    def writer(self) -> Any:
        """The `SummaryWriter` of torch. If it was closed, a new one is opened."""
        if self._writer is None:
            self._writer = _summary_writer(self.path)
        return self._writer

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def hyperparameters(self, values: Mapping[str, object]) -> None:
        """Show the settings in TensorBoard's tab of hyper-parameters, next to the mean return of the episodes."""
        self._hparams(values, {"rollout/ep_rew_mean": 0.0})

    def _hparams(self, settings: Mapping[str, object], metrics: Mapping[str, float]) -> None:
        from torch.utils.tensorboard.summary import hparams

        make: Any = hparams
        for summary in make(dict(settings), dict(metrics)):
            self.writer.file_writer.add_summary(summary)  # `add_hparams` would create another run

    def media(self, step: int, values: Mapping[str, object]) -> list[str]:
        """Show texts, pictures, figures, videos, hyper-parameters and histograms; return the names of the values shown."""
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
        """Write one histogram per tensor [..], under `parameters/NAME`."""
        for name, tensor in tensors.items():
            self.writer.add_histogram(f"parameters/{name}", tensor, step)

    def flush(self) -> None:
        """Write buffered values to disk."""
        self.writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _summary_writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise SettingsError(
            f"tensorboard_log needs the tensorboard package: {pip_install('rlsdk[tensorboard]')}"
        ) from None
    try:
        return SummaryWriter(str(folder))
    except OSError as error:
        raise unwritable(folder, error) from None
