"""Comparison reports: documents of the compared runs, wording, and formats."""
