"""Charts of a run: one file a chart, each drawn on a sheet of the size of a slide."""
