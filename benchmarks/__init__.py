"""Measures rlsdk against peer libraries on the same work. See `python -m benchmarks --help`."""
