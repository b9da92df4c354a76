"""Writes the pages of the site that come from code: reference, commands, cards with their learning curves."""
