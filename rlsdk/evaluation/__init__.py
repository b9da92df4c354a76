"""Playing episodes with an agent, and statistics over runs."""
