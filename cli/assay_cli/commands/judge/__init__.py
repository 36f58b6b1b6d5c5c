"""`assay judge`: calibration and drift of judges."""
