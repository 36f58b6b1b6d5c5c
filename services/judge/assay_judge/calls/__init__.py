"""Calls of a judge: rate limits, payment and retries, with one client per model."""
