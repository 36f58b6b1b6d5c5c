"""`assay.compare`: comparison of runs from files, an orchestrator, or memory."""
