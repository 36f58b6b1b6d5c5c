"""Charts of a run, one module per chart, each on a sheet of slide size."""
