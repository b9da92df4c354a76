"""Files of agents and checkpoints: archives of tensors and JSON. Reading a file runs no code from it."""
