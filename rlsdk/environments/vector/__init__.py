"""Several environments stepped together: in this process, in others, or by a library of their own."""
