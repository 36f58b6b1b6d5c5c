"""The Python API: `assay.evaluate`, `assay.rescore`, `assay.runs` and their results."""
