"""What runs leave on disk: their records, and what may be believed of records that others wrote."""
