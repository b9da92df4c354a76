"""Writes pictures and videos to files, which every tracker accepts (extra `video` of rlsdk)."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlsdk.errors import SettingsError, shown
from rlsdk.runtime import pip_install
from rlsdk.sinks import Figure, Image, Video

Pixels = NDArray[np.uint8]


def write_image(image: Image, folder: Path) -> Path:
    """Write an image to a PNG file in `folder`, and return its path.

    Raises:
        SettingsError: the array does not hold a picture, or Pillow is missing.
    """
    order = image.dataformats.upper()
    values = array_of(image.image)
    if sorted(order) not in (sorted("HWC"), sorted("HW")) or values.ndim != len(order):
        raise SettingsError(
            f"an image of shape {values.shape} is not {shown(image.dataformats)}; dataformats is HWC, CHW or HW"
        )
    pixels = _bytes_of(values).transpose([order.index(axis) for axis in "HWC" if axis in order])
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    path = folder / "image.png"
    _needed("PIL.Image").fromarray(np.ascontiguousarray(pixels)).save(path)
    return path


def write_figure(figure: Figure, folder: Path) -> Path:
    """Write a figure to a PNG file in `folder`, and return its path. The figure is cleared if `figure.close` is true."""
    path, drawn = folder / "figure.png", figure.figure
    getattr(drawn, "savefig")(path)  # noqa: B009  # a matplotlib figure, which has no type here
    if figure.close and hasattr(drawn, "clear"):
        drawn.clear()
    return path


def write_video(video: Video, folder: Path) -> Path:
    """Write videos to one MP4 file in `folder`, one after the other, and return its path.

    Raises:
        SettingsError: the array does not hold a video, or imageio is missing.
    """
    frames = array_of(video.frames)
    if frames.ndim != 5 or frames.shape[2] not in (1, 3):
        raise SettingsError(f"a video needs frames [N, T, C, H, W] with 1 or 3 channels, not {frames.shape}")
    pixels = _bytes_of(frames).reshape(-1, *frames.shape[2:]).transpose(0, 2, 3, 1)
    height, width = pixels.shape[1:3]
    even = ((0, 0), (0, height % 2), (0, width % 2), (0, 0))  # encoders need even sides
    pixels = np.pad(np.broadcast_to(pixels, (*pixels.shape[:3], 3)), even, mode="edge")
    path = folder / "video.mp4"
    _needed("imageio_ffmpeg")
    _needed("imageio.v3").imwrite(path, pixels, plugin="FFMPEG", fps=video.fps, macro_block_size=2)
    return path


def array_of(values: object) -> NDArray[Any]:
    """Convert an array or a tensor to a numpy array."""
    numpy = getattr(values, "numpy", None)
    return np.asarray(values) if numpy is None else np.asarray(numpy(force=True))


def _bytes_of(values: NDArray[Any]) -> Pixels:
    """Convert colors to uint8 from 0 to 255. Values that are not uint8 already are read as numbers from 0 to 1."""
    if values.dtype == np.uint8:
        return values
    return np.asarray(np.clip(values.astype(np.float64), 0.0, 1.0) * 255.0, np.uint8)


def _needed(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise SettingsError(
            f"pictures and videos in trackers need more packages: {pip_install('rlsdk[video]')}"
        ) from None
