"""`assay judge`: calibrations and drift, from files of answers to reports."""
