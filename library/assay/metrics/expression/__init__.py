"""Expressions of formulas: parsed without `eval`, computed over the scores of a row."""
