"""Agent files altered on purpose, with digests that fit again: each loads and works, or is refused."""
