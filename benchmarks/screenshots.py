"""The pictures of the terminal, of a report, of the page of runs and of TensorBoard, in docs/images/screens.

python -m benchmarks.screenshots [NAME ...]     list, run, report, ui, tensorboard; all without

`list` and `run` are what a terminal of 90 columns shows, as SVG. The others are PNG files, and need a browser.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import platform
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text

from rlsdk.errors import UsageError

FOLDER = Path(__file__).parents[1] / "docs" / "images" / "screens"
COLUMNS, PORT = 90, 8643
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
COMMANDS = {
    "list": "rlsdk list",
    "run": "rlsdk run ppo --env CartPole-v1 --steps 20000 --seed 0 --out runs/first",
    "report": "rlsdk bench suite.toml --seeds 3 --jobs 1 --out report",
    "ui": "rlsdk bench suite.toml --seeds 3 --jobs 1 --out report",
    "tensorboard": "rlsdk run ppo --env CartPole-v1 --steps 20000 --seed 0 --logger tensorboard --out runs/tensorboard",
}
"""Picture -> the command that is shown, or whose files are."""
SUITE = """[suite]
episodes = 10

[[cells]]
algorithm = "ppo"
env = "CartPole-v1"
steps = 20_000

[[cells]]
algorithm = "a2c"
env = "CartPole-v1"
steps = 20_000
"""


def write(name: str, folder: Path) -> None:
    """Run the command of a picture in a folder, and write the picture."""
    shown = _on_terminal(COMMANDS[name], folder)
    if name in ("list", "run"):
        _draw(f"$ {COMMANDS[name]}", shown, FOLDER / f"{name}.svg")
    elif name == "report":
        page = folder / "report" / "report.html"
        # the build of a kernel is long, and of no interest
        page.write_text(page.read_text("utf-8").replace(platform.platform(), platform.system()), encoding="utf-8")
        _photograph(page.as_uri(), name, 1270)
    else:
        server = ["rlsdk", "ui", "report", "--no-browser"] if name == "ui" else ["tensorboard", "--logdir", "runs"]
        place = "" if name == "ui" else "#scalars&tagFilter=rew"
        with _served([*server, "--port", str(PORT)], folder):
            _photograph(f"http://127.0.0.1:{PORT}/{place}", name, 700)


def _on_terminal(command: str, folder: Path) -> str:
    """Run a command in a terminal, and return the text that is left on the screen."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS))
        os.execvp(sys.executable, [sys.executable, "-m", *command.split()])
    read = bytearray()
    with contextlib.suppress(OSError):  # reading at the end of a terminal is an error
        while piece := os.read(terminal, 65536):
            read += piece
    os.waitpid(child, 0)
    # a bar is drawn over itself, and the cursor is hidden meanwhile
    lines = [re.split(r"\r(?:\x1b\[2K)?", line)[-1] for line in read.decode().replace("\r\n", "\n").split("\n")]
    return re.sub(r"\x1b\[\?25[lh]", "", "\n".join(lines))


def _draw(command: str, shown: str, path: Path) -> None:
    """Write the text of a terminal as a picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(command, "bold"))
    console.print(Text.from_ansi(shown.rstrip()))
    # white, because the site inverts its pictures in the dark
    svg = console.export_svg(title="", theme=DEFAULT_TERMINAL_THEME, unique_id=path.stem)
    # its fonts would be loaded from another host
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code,", "")
    path.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", encoding="utf-8")


def _photograph(address: str, name: str, height: int) -> None:
    """Write what a browser shows of a page, 60 seconds of its clock after the start."""
    browser = next((found for each in BROWSERS if (found := shutil.which(each))), None)
    if browser is None:
        raise UsageError(f"pictures of pages need a browser: none of {', '.join(BROWSERS)} is on PATH")
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size=1100,{height}"]
    time_limit, out = "--virtual-time-budget=60000", f"--screenshot={FOLDER / name}.png"
    subprocess.run([browser, *options, time_limit, out, address], check=True, capture_output=True, timeout=300)


@contextlib.contextmanager
def _served(command: Sequence[str], folder: Path) -> Iterator[None]:
    """Run a server until the end of the block, which begins when it answers."""
    line = [shutil.which(command[0], path=str(Path(sys.executable).parent)) or command[0], *command[1:]]
    server = subprocess.Popen(line, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(120):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{PORT}/", timeout=5):
                break
            time.sleep(1)
        yield
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.screenshots", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*COMMANDS, []], metavar="NAME", help="of a picture")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "suite.toml").write_text(SUITE, encoding="utf-8")
        for name in parser.parse_args().names or COMMANDS:
            write(name, Path(folder))


if __name__ == "__main__":
    main()
