"""Scoring without an agent and without a run: `assay.score` and its relatives."""
