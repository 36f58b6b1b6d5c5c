"""Grading: one verdict from request to outcome."""
