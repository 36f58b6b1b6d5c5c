"""Scoring off the event loop: worker processes with limits per row, and the choice of the rows they get."""
