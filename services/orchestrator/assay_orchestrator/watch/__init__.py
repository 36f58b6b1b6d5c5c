"""Watches of runs: what clients that watch a run receive, and the notifier that wakes them."""
