"""Agent files that are altered deliberately, with correct digests: each must load and work, or be refused."""
