"""Verdicts and spending in PostgreSQL: one cache and exact caps over all replicas of the judge."""
