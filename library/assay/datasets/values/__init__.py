"""Parsing the values of records by the type of their field."""
