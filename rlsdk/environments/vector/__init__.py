"""Several environments stepped together: in this process, in others, or by another library."""
