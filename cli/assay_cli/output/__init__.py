"""What the command prints: the summary, rows, documents, progress, and what a terminal can show."""
