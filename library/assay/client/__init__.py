"""Client of an orchestrator: `assay.evaluate`, the asynchronous client below it, and progress output."""
