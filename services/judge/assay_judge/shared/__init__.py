"""Verdicts, spending and batches in PostgreSQL: one cache, exact caps and one order over all replicas of the judge."""
