"""Sentences that reports and the command share."""
