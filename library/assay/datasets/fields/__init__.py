"""The fields of a dataset: their names, aliases and languages."""
