"""The built site in a real browser: no page is wider than its window, and the search knows the words people look for."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "chromium-headless-shell")
WIDTHS = (1280, 420)
SOUGHT = ("gpu", "docker", "notebook", "wandb", "kwargs")

# a page that opens every page of the site in a frame of one width, and prints those that are wider than it
WALK = """
<!doctype html><body><script>
const pages = PAGES, width = WIDTH, wide = [];
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
  frame.remove();
}
(async () => {
  for (const page of pages) await look(page);
  document.body.innerHTML = "<pre>" + btoa(unescape(encodeURIComponent(JSON.stringify([pages.length, wide])))) + "</pre>";
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


def wider_than_the_window(site: Path, width: int) -> list[str]:
    """The pages that scroll sideways at this width."""
    pages = sorted(str(path.relative_to(site)) for path in site.rglob("*.html"))
    walk = site / f"walk-{width}.html"
    walk.write_text(WALK.replace("PAGES", json.dumps(pages)).replace("WIDTH", str(width)))
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--dump-dom")
    profile = f"--user-data-dir={site.parent / 'profile'}"
    line = [browser(), *options, profile, "--virtual-time-budget=600000", "--window-size=1400,1000", walk.as_uri()]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    found = re.search(r"<pre>([\w+/=]+)</pre>", done.stdout)
    assert found, f"the browser measured nothing: {done.stderr[-500:]}"
    looked_at, wide = json.loads(base64.b64decode(found[1]))
    assert looked_at == len(pages) > 80
    return list(wide)


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_the_window(site: Path, width: int) -> None:
    assert wider_than_the_window(site, width) == []


@pytest.mark.slow
def test_a_page_that_is_too_wide_is_found(site: Path) -> None:
    page = site / "too-wide.html"
    page.write_text("<!doctype html><article><p style='width: 900px'>wide</p></article>")
    try:
        assert [line.split(":")[0] for line in wider_than_the_window(site, 420)] == [page.name]
    finally:
        page.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("word", SOUGHT)
def test_the_search_finds(site: Path, word: str) -> None:
    index = json.loads((site / "searchindex.js").read_text().removeprefix("Search.setIndex(").removesuffix(")"))
    assert word in {**index["terms"], **index["titleterms"]}


if __name__ == "__main__":
    for size in WIDTHS:
        print(size, *wider_than_the_window(Path(sys.argv[1]).resolve(), size), sep="\n  ")
