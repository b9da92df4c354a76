"""Services of the process that training runs in: device, threads, memory, seeds, output and files."""
