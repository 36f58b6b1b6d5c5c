"""Expressions of formulas, parsed without `eval`."""
