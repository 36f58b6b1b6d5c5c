"""Progress of runs and groups, for terminals, notebooks and logs."""
