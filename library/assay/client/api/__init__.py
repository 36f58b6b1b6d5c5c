"""The Python API: `assay.evaluate`, `assay.rescore`, `assay.list_runs` and their results."""
