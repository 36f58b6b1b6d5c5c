"""`assay datasets`: files of cases, and the datasets that an orchestrator stores."""
