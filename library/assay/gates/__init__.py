"""The verdict of a run: gates, thresholds and errors, joined by one function."""
