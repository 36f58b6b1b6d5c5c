"""Verdicts through the batch APIs of providers: orders, their lifecycle, and the stores of one process or many."""
