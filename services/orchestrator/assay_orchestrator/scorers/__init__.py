"""Scoring off the event loop: worker processes with a limit per row, and what decides which rows they get."""
