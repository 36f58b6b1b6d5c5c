"""Verdicts through the providers' batch APIs: orders, the lifecycle of a batch, and the store of both."""
