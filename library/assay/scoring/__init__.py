"""Scoring without an agent and without a run: `assay.score` and what belongs to it."""
