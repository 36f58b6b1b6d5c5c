"""Mutation testing of the modules whose faults would cost most: `make mutants`; see docs/mutants.md."""
