"""The data of comparison reports."""
