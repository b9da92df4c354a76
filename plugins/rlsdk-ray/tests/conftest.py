"""Ray has no wheels for every Python and system: without it the tests are left out."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("ray") else ["test_*.py"]
