"""Leaves the tests out where Ray is not installed: it does not have wheels for every Python version and system."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("ray") else ["test_*.py"]
