"""The spec, `assay.yaml`: reading, applying its preset and checking it, with every problem reported at once."""
