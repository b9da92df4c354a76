"""Ours against the peer library on the same work, interleaved. Run `python -m benchmarks --help`."""
