"""Files that are altered deliberately, agents with correct digests: each must load and work, or be refused."""
