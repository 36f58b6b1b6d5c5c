"""Running evaluations against an orchestrator: `assay.evaluate`, the client below it, and progress."""
