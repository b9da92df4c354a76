"""What runs leave on disk: their records, and which entries of records by others are accepted."""
