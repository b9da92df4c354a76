"""The clauses, one file per interface."""
