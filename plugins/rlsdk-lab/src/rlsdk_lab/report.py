"""The report of a bench.

It consists of one self-contained HTML file, the same tables as Markdown, the scores as CSV, and the pictures, each with its
numbers as CSV.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from urllib.parse import quote

from rlsdk.agent import system_info
from rlsdk.errors import SettingsError
from rlsdk.runtime import sealed
from rlsdk_lab import report_tables as tables
from rlsdk_lab.benchmark import BenchResult
from rlsdk_lab.curves import write_beside_edits
from rlsdk_lab.report_figures import Picture, learning_curves, profiles
from rlsdk_lab.report_tables import Table
from rlsdk_lab.scores import write_scores

REPORT, SUMMARY, SCORES, PICTURES = "report.html", "summary.md", "scores.csv", "pictures"


def write_report(outcome: BenchResult, command: str) -> Path:
    """Write report.html, summary.md, scores.csv and the folder `pictures` next to the runs. Return the path of report.html.

    Pictures need matplotlib.
    """
    folder = outcome.plan.out
    found = tables.all_tables(outcome)
    title = f"rlsdk bench {outcome.plan.suite.name}"
    header = [outcome.plan.suite.description, f"Command: {command}", f"Versions: {versions()}"]
    text = "\n\n".join([f"# {title}", *header, *(f"## {table.title}\n\n{table.markdown()}" for table in found)])
    write_beside_edits(folder / SUMMARY, sealed(f"{text}\n"))
    write_scores(outcome.scores, folder / SCORES)
    page = Template((files("rlsdk_lab") / "report.html").read_text(encoding="utf-8"))
    body = "\n".join([*map(_html, found), *_pictures(outcome)])
    lines = "".join(f"<p>{escape(fact)}</p>" for fact in header if fact)
    return write_beside_edits(folder / REPORT, sealed(page.substitute(title=escape(title), facts=lines, body=body)))


def versions() -> str:
    """Return the versions of Python, the platform and the packages, on one line."""
    return ", ".join(f"{name}: {version}" for name, version in system_info().items())


def _html(table: Table) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.header)
    long = " class='long'"
    rows = "".join(
        "<tr>" + "".join(f"<td{long if len(cell) > 40 else ''}>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    return (
        f"<section><h2>{escape(table.title)}</h2><div class='wide'><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def _pictures(outcome: BenchResult) -> Iterator[str]:
    """Yield the HTML of the performance profiles, then of the learning curves on each environment. Without matplotlib, yield
    a note."""
    place = outcome.plan.out / PICTURES
    try:
        comparable, where = tables.comparable(outcome)
        if comparable:
            found = {name: list(by_env.values()) for name, by_env in comparable.items()}
            yield _image(profiles(found, where, place))
        for env in dict.fromkeys(score.env for score in outcome.scores):
            folders = [score.folder for score in outcome.scores if score.env == env]
            yield _image(learning_curves(env, folders, place))
    except SettingsError as error:
        yield f"<p>No pictures: {escape(str(error))}</p>"


def _image(picture: Picture) -> str:
    data = base64.b64encode(picture.path.read_bytes()).decode("ascii")
    numbers = quote(f"{PICTURES}/{picture.table.name}")
    return (
        f"<section><h2>{escape(picture.title)}</h2><img alt='{escape(picture.text)}' src='data:image/png;base64,{data}'>"
        f"<p><a href='{numbers}'>the numbers as CSV</a></p></section>"
    )
