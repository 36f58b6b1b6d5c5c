"""Comparisons of runs: read from the runs' documents, and written in every form."""
