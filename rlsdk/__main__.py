"""The entry point of the `rlsdk` command and of `python -m rlsdk`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. Ctrl-C ends it without a traceback, even while modules are still being imported."""
    try:
        from rlsdk.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
