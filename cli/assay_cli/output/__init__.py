"""Output of the command: summary, rows, JSON documents, progress, and the terminal's limits."""
