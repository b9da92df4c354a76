"""The built site in a real browser: no page is wider than its window, tables show all columns on a laptop, and the search
finds frequent words."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "chromium-headless-shell")
WIDTHS = (1280, 420)
LAPTOP = 1280
SOUGHT = ("gpu", "docker", "notebook", "wandb", "kwargs")

# an HTML page that opens every page of the site in a frame of one width, and prints those that are wider
WALK = """
<!doctype html><body><script>
const pages = PAGES, width = WIDTH, wide = [], hidden = [];
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
  frame.remove();
}
(async () => {
  for (const page of pages) await look(page);
  document.body.innerHTML = `<pre>${btoa(unescape(encodeURIComponent(JSON.stringify([pages.length, wide, hidden]))))}</pre>`;
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


def measured(site: Path, width: int) -> tuple[list[str], list[str]]:
    """Return the pages that are wider than a window of this width, and those with a table that is wider than its box."""
    pages = sorted(str(path.relative_to(site)) for path in site.rglob("*.html"))
    walk = site / f"walk-{width}.html"
    walk.write_text(WALK.replace("PAGES", json.dumps(pages)).replace("WIDTH", str(width)))
    found = re.search(r"<pre>([\w+/=]+)</pre>", dom_of(site, walk.as_uri()))
    walk.unlink()
    assert found, "the browser measured nothing"
    looked_at, wide, hidden = json.loads(base64.b64decode(found[1]))
    assert looked_at == len(pages) > 80
    return wide, hidden


def dom_of(site: Path, address: str) -> str:
    """Return the HTML of a page after its scripts have run."""
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--dump-dom")
    profile = f"--user-data-dir={site.parent / 'profile'}"
    line = [browser(), *options, profile, "--virtual-time-budget=600000", "--window-size=1400,1000", address]
    return subprocess.run(line, capture_output=True, text=True, timeout=300, check=False).stdout


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_the_window(site: Path, width: int) -> None:
    wide, hidden = measured(site, width)
    assert wide == []
    if width >= LAPTOP:
        assert hidden == [], "these tables hide columns"


@pytest.mark.slow
def test_a_page_that_is_too_wide_is_found(site: Path) -> None:
    page = site / "too-wide.html"
    page.write_text("<!doctype html><article><p style='width: 900px'>wide</p></article>")
    try:
        assert [line.split(":")[0] for line in measured(site, 420)[0]] == [page.name]
    finally:
        page.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("word", SOUGHT)
def test_the_search_finds(site: Path, word: str) -> None:
    found = re.search(r"found (\d+|one) page", dom_of(site, f"{(site / 'search.html').as_uri()}?q={word}"))
    assert found, "the search found nothing"


if __name__ == "__main__":
    for size in WIDTHS:
        print(size, *chain(*measured(Path(sys.argv[1]).resolve(), size)), sep="\n  ")
