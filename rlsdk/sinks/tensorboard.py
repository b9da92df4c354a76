"""A sink that writes metrics for TensorBoard. It needs the extra `tensorboard`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from rlsdk.errors import SettingsError
from rlsdk.runtime.pip_commands import pip_install
from rlsdk.sinks.media import Figure, HParam, Image, Video
from rlsdk.sinks.place import made, unwritable
from rlsdk.sinks.sink import Sink


class TensorBoardSink(Sink):
    """Writes metrics, settings and media to `folder/name_1`, `folder/name_2`, ...: each run uses the next free number.

    With `continue_last` it writes to the existing folder with the highest number.
    """

    format = "tensorboard"

    def __init__(self, folder: Path, name: str, *, continue_last: bool = False) -> None:
        """Raises SettingsError if the tensorboard package is not installed or `folder` contains a null character."""
        if "\0" in str(folder):
            raise SettingsError(f"tensorboard_log = {str(folder)!r} names no folder")
        made(folder)
        last = max(_numbers(folder / f"{name}_"), default=0)
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
            self._show_video(name, value, step)
        elif isinstance(value, HParam):
            self._hparams(value.hparam_dict, value.metric_dict)
        elif hasattr(value, "shape"):
            self.writer.add_histogram(name, value, step)
        else:
            return False
        return True

    def _show_video(self, name: str, video: Video, step: int) -> None:
        """Write the videos side by side as one animated picture. (`add_video` of torch needs an old moviepy, and without it
        prints a line and writes nothing.)

        Raises:
            SettingsError: imageio is missing, or the array does not hold videos.
        """
        try:
            import imageio.v3
        except ImportError:
            raise SettingsError(f"videos in TensorBoard need imageio: {pip_install('rlsdk[video]')}") from None
        summary: Any = import_module("tensorboard.compat.proto.summary_pb2").Summary

        given: Any = video.frames
        frames = np.asarray(given.cpu() if isinstance(given, Tensor) else given)
        if frames.ndim != 5 or frames.shape[2] not in (1, 3) or not frames.size:
            raise SettingsError(f"a video needs frames [N, T, C, H, W] with 1 or 3 channels, not {frames.shape}")
        if frames.dtype != np.uint8:
            frames = (np.clip(frames.astype(np.float64), 0.0, 1.0) * 255.0).astype(np.uint8)
        count, length, channels, height, width = frames.shape
        joined = frames.transpose(1, 3, 0, 4, 2).reshape(length, height, count * width, channels)
        joined = np.broadcast_to(joined, (*joined.shape[:3], 3))
        data = imageio.v3.imwrite("<bytes>", joined, extension=".gif", duration=1000.0 / video.fps, loop=0)
        picture = summary.Image(height=height, width=count * width, colorspace=3, encoded_image_string=data)
        self.writer.file_writer.add_summary(summary(value=[summary.Value(tag=name, image=picture)]), step)

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


def _numbers(beginning: Path) -> list[int]:
    """The numbers of the folders whose paths are `beginning` and a number. A name may hold any characters, such as `[16]`."""
    parent, prefix = beginning.parent, beginning.name
    names = [path.name for path in parent.iterdir()] if parent.is_dir() else []
    tails = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    return [int(tail) for tail in tails if tail.isascii() and tail.isdecimal()]


def _summary_writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise SettingsError(
            f"tensorboard_log needs the tensorboard package: {pip_install('rlsdk[tensorboard]')}"
        ) from None
    try:
        return SummaryWriter(str(folder))
    except (OSError, ValueError) as error:
        raise unwritable(folder, error) from None
