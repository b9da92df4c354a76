"""The commands `rlsdk plot RUN...` and `rlsdk ui FOLDER`, which show runs."""

from __future__ import annotations

import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlsdk.errors import SettingsError, shown
from rlsdk_datasets import Dataset
from rlsdk_lab.record_command import has_screen

if TYPE_CHECKING:
    from rlsdk_lab.plotting import PictureSettings

MOST_POINTS = 10**7
"""The largest number of points of a running mean."""


def plot_curves(  # noqa: PLR0913  # options of the command
    runs: Annotated[list[Path], typer.Argument(help="Run directories, folders that contain them, or one data set.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Picture to write.")] = Path("curves.png"),
    metric: Annotated[
        str | None, typer.Option(help="Column of metrics.csv (default: returns of evaluations if all runs have them).")
    ] = None,
    x: Annotated[str, typer.Option(help="Horizontal axis: steps, episodes or time.")] = "steps",
    smooth: Annotated[
        int, typer.Option(help="Number of points of the running mean; 1 means none.", min=1, max=MOST_POINTS)
    ] = 1,
    statistic: Annotated[
        str, typer.Option(help="Statistic over seeds: mean, iqm (interquartile mean) or median.")
    ] = "mean",
    band: Annotated[
        str, typer.Option(help="Band around the line: interval (95 % bootstrap), range, deviation or none.")
    ] = "interval",
    title: Annotated[str, typer.Option(help="Title (default: how the numbers were computed).")] = "",
    size: Annotated[str | None, typer.Option(help="WIDTHxHEIGHT in inches, such as 8x4.")] = None,
    picture_format: Annotated[
        str | None, typer.Option("--format", help="png, svg, pdf, ... (default: the suffix of --out).")
    ] = None,
    log: Annotated[str, typer.Option(help="Logarithmic axes: none, x, y or xy.")] = "none",
) -> None:
    """Draw learning curves: one plot per environment, one line per algorithm and settings, a band over seeds.

    For a data set, draw the returns and lengths of its episodes.

    The numbers are written next to the picture, as CSV.
    """
    from rlsdk_lab.curves import CurveSettings, runs_below
    from rlsdk_lab.plotting import PictureSettings, plot_runs

    drawn = CurveSettings(metric=metric, x=x, smooth=smooth, statistic=statistic, band=band)
    picture = PictureSettings(title=title, size=_size(size), log=log)
    output = _picture(out, picture_format)
    if len(runs) == 1 and (data := Dataset.file_at(runs[0])) is not None:
        _plot_data(data, output, picture)
        return
    for line in plot_runs(runs_below(runs), output, drawn, picture):
        typer.echo(line)
    typer.echo(f"picture: {output}    numbers: {output.with_suffix('.csv')}")


def _picture(out: Path, picture_format: str | None) -> Path:
    """Return the file to write. A suffix that begins with a digit, as in `curve-0.5`, is a part of the name, not a format."""
    suffix = "" if out.suffix[1:2].isdigit() else out.suffix
    if suffix and picture_format is None:
        return out
    stem = out.with_suffix("") if suffix else out
    return stem.with_name(f"{stem.name}.{(picture_format or 'png').lstrip('.')}")


def _plot_data(file: Path, output: Path, picture: PictureSettings) -> None:
    from rlsdk_datasets import summary_of
    from rlsdk_lab.data_set_picture import plot_episodes

    found = summary_of(file)
    title = picture.title or f"{file.stem}: {found.environment or 'environment not named'}"
    typer.echo(plot_episodes(found.returns, found.lengths, output, title))
    typer.echo(f"picture: {output}    numbers: {output.with_suffix('.csv')}")


def _size(text: str | None) -> tuple[float, float] | None:
    """Parse a size such as `8x4` into (width, height)."""
    if text is None:
        return None
    try:
        width, height = (float(side) for side in text.lower().split("x"))
    except ValueError:
        raise SettingsError(f"--size {shown(text)} must be WIDTHxHEIGHT in inches, such as 8x4") from None
    return width, height


def show_runs(
    folder: Annotated[Path, typer.Argument(help="Folder with runs.")] = Path("runs"),
    port: Annotated[int, typer.Option(help="Port of the page; 0 = a free one.", min=0, max=65535)] = 8642,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address only.")] = False,
) -> None:
    """Show the runs of a folder on a local page: live curves, evaluations, settings side by side, videos. Ctrl-C ends it."""
    from rlsdk_lab.run_page import made_server

    server = made_server(folder, port)
    typer.echo(f"{folder}: {server.address} (Ctrl-C ends)")
    if not no_browser and has_screen():
        webbrowser.open(server.address)
    with suppress(KeyboardInterrupt), server:
        server.serve_forever()
