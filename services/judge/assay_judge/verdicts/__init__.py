"""Verdicts: the prompt from rubric and material, the check of the reply, and the cache."""
