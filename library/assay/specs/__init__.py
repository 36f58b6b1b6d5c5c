"""The spec, `assay.yaml`: read, completed from its preset, checked; every problem at once."""
