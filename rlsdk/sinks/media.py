"""Values other than numbers and texts, such as images. TensorBoard and trackers show them; other sinks leave them out."""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.frozen(eq=False)
class Image:
    """A picture.

    Args:
        image: array or tensor, float in [0, 1] or uint8.
        dataformats: order of the axes of `image`, such as "HWC", "CHW", "HW" (height, width, channels).
    """

    image: object
    dataformats: str = "HWC"


@attrs.frozen(eq=False)
class Figure:
    """A matplotlib figure. It is closed after it was logged, unless `close` is False."""

    figure: object
    close: bool = True


@attrs.frozen(eq=False)
class Video:
    """Videos as frames [N, T, C, H, W] of uint8, shown at `fps` frames per second (needs the extra `video`)."""

    frames: object
    fps: float = 30.0


@attrs.frozen(eq=False)
class HParam:
    """Hyper-parameters (name -> value), and the metrics by which they are compared (name -> first value)."""

    hparam_dict: Mapping[str, bool | str | float | None]
    metric_dict: Mapping[str, float]
