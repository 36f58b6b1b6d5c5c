"""Requests to agents and their answers, and the field names that other tools use for them."""
