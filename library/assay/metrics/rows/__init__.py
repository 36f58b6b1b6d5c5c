"""Scoring of a row by all metrics of a run, in the order of their dependencies."""
