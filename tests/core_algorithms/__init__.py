"""Algorithms that show that the parts of the core suffice: whole, short, on public names only."""
