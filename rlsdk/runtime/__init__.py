"""What training needs from the process it runs in."""
