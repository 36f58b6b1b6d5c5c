"""The scores of a row by all metrics of a run: in which order, how much work, and what they give."""
