"""The fields of a dataset: names, aliases and languages."""
