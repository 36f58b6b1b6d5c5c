"""Calls of a judge: rate-limited, paid for, retried where that may help; one client a model."""
