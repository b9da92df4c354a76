"""Vector environments: several environments that are stepped together in this process, in others, or by another library."""
