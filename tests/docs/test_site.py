"""The built site in a real browser: no page is wider than its window, tables show all columns on a laptop, results are
visible on a telephone, every picture is there, the landing page shows a picture and code, and the search finds words."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import MappingProxyType

import pytest

from docs.generator.signatures import python_value
from rlsdk.settings import Constant

ROOT = Path(__file__).parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "chromium-headless-shell")
WIDTHS = (1280, 420)
LAPTOP = 1280
RESULTS = ("rlsdk", "mean over seeds", "mean return [95 %]")
"""Columns of tables whose numbers readers look for."""
SOUGHT = ("gpu", "docker", "notebook", "wandb", "kwargs")

# an HTML page that opens every page of the site in a frame of one width, and prints what is wrong with them
WALK = """
<!doctype html><body><script>
const pages = PAGES, width = WIDTH, wide = [], hidden = [], broken = [], unseen = [];
const below = (box, page) => !box || box.getBoundingClientRect().bottom > 800 ? [page] : [];
async function look(page) {
  const frame = document.createElement("iframe");
  frame.style = `width: ${width}px; height: 900px; border: 0`;
  frame.src = page;
  document.body.append(frame);
  await new Promise(done => frame.onload = done);
  const inner = frame.contentDocument.documentElement;
  if (inner.clientWidth !== width && inner.clientWidth < width - 20) wide.push(page + ": not measured");
  if (inner.scrollWidth > inner.clientWidth) {
    const beyond = [...frame.contentDocument.querySelectorAll("article *")].filter(
      each => each.getBoundingClientRect().right > inner.clientWidth + 1);
    wide.push(page + ": " + inner.scrollWidth + " " + (beyond.length ? beyond[0].outerHTML.slice(0, 120) : ""));
  }
  for (const box of frame.contentDocument.querySelectorAll(".table-wrapper"))
    if (box.scrollWidth > box.clientWidth + 1) hidden.push(page + ": " + box.innerText.slice(0, 120));
  for (const picture of frame.contentDocument.images)
    if (picture.naturalWidth === 0) broken.push(page + ": " + picture.getAttribute("src"));
  for (const cell of frame.contentDocument.querySelectorAll("th"))
    if (/^(results|cards)/.test(page) && RESULTS.includes(cell.innerText)
        && cell.getBoundingClientRect().right > inner.clientWidth)
      unseen.push(page + ": column " + cell.innerText);
  if (page === "index.html" && width > 1000)
    for (const shown of ["article img", "article pre"])
      unseen.push(...below(frame.contentDocument.querySelector(shown), page + ": " + shown));
  frame.remove();
}
(async () => {
  for (const page of pages) await look(page);
  const found = JSON.stringify({count: pages.length, wide, hidden, broken, unseen});
  document.body.innerHTML = `<pre>${btoa(unescape(encodeURIComponent(found)))}</pre>`;
})();
</script></body>
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "docs", str(folder / "html")]
    subprocess.run([*command, "-d", str(folder / "trees")], cwd=ROOT, check=True, capture_output=True)
    return folder / "html"


def browser() -> str:
    for name in BROWSERS:
        if (found := shutil.which(name)) is not None:
            return found
    pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on PATH (Debian: apt-get install chromium)")


@cache
def measured(site: Path, width: int) -> dict[str, list[str]]:
    """Return what is wrong with the pages in a window of this width.

    wide: pages that are wider than the window. hidden: tables that are wider than their box. broken: pictures that are not
    there. unseen: columns of results, and the first picture and code of the landing page, that need scrolling.
    """
    pages = sorted(str(path.relative_to(site)) for path in site.rglob("*.html"))
    walk = site / f"walk-{width}.html"
    given = {"PAGES": pages, "WIDTH": width, "RESULTS": RESULTS}
    walk.write_text(re.sub("|".join(given), lambda name: json.dumps(given[name[0]]), WALK))
    found = re.search(r"<pre>([\w+/=]+)</pre>", dom_of(site, walk.as_uri()))
    walk.unlink()
    assert found, "the browser measured nothing"
    problems: dict[str, list[str]] = json.loads(base64.b64decode(found[1]))
    assert problems.pop("count") == len(pages)  # type: ignore[comparison-overlap]  # the only number
    return problems


def dom_of(site: Path, address: str) -> str:
    """Return the HTML of a page after its scripts have run."""
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--dump-dom")
    profile = f"--user-data-dir={site.parent / 'profile'}"
    line = [browser(), *options, profile, "--virtual-time-budget=600000", "--window-size=1400,1000", address]
    return subprocess.run(line, capture_output=True, text=True, timeout=300, check=False).stdout


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_the_window(site: Path, width: int) -> None:
    assert len(list(site.rglob("*.html"))) > 80
    problems = measured(site, width)
    assert problems["wide"] == []
    if width >= LAPTOP:
        assert problems["hidden"] == [], "these tables hide columns"


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_pictures_and_results_are_there(site: Path, width: int) -> None:
    problems = measured(site, width)
    assert problems["broken"] == []
    assert problems["unseen"] == [], "these are visible only after scrolling"


@pytest.mark.slow
def test_pages_show_no_objects(site: Path) -> None:
    dumps = re.compile(
        "object at 0x|&lt;(factory|function|class &#39;)|Factory\\(|NOTHING|PosixPath|generated by attrs"
    )
    pages = [*site.glob("reference/*.html"), *site.glob("cards/*.html")]
    assert len(pages) > 50
    assert [(page.name, found[0]) for page in pages if (found := dumps.search(page.read_text()))] == []


def test_defaults_are_written_as_in_python() -> None:
    long = {f"name_{number}": number for number in range(20)}
    values = [None, True, "auto", (1, 2), {}, MappingProxyType({"a": 1}), Constant(0.5), Path("a"), len, object(), long]
    assert [python_value(value) for value in values] == [
        *("None", "True", "'auto'", "(1, 2)", "{}", "{'a': 1}", "0.5", "Path('a')", "len", "object", "{...}"),
    ]


def test_each_problem_is_found(tmp_path: Path) -> None:
    table = "<div class='table-wrapper' style='overflow: auto'><table><tr><th><p style='width: 1400px'><th>rlsdk</table></div>"
    pages = {
        "index.html": "<div style='height: 900px'></div><article><img src='missing.svg'><pre>code</pre></article>",
        "results.html": f"<article>{table}</article>",
        "wide.html": "<article><p style='width: 1400px'>wide</p></article>",
    }
    for name, text in pages.items():
        (tmp_path / name).write_text(f"<!doctype html>{text}")
    problems = measured(tmp_path, LAPTOP)
    assert {kind: [line.split(":")[0] for line in found] for kind, found in problems.items()} == {
        "wide": ["wide.html"],
        "hidden": ["results.html"],
        "broken": ["index.html"],
        "unseen": ["index.html", "index.html", "results.html"],
    }


@pytest.mark.slow
@pytest.mark.parametrize("word", SOUGHT)
def test_the_search_finds(site: Path, word: str) -> None:
    found = re.search(r"found (\d+|one) page", dom_of(site, f"{(site / 'search.html').as_uri()}?q={word}"))
    assert found, "the search found nothing"


if __name__ == "__main__":
    for size in WIDTHS:
        for problem, places in measured(Path(sys.argv[1]).resolve(), size).items():
            print(size, problem, *places, sep="\n  ")
