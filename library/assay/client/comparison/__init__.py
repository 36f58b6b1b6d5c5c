"""`assay.compare`: compared runs, joined from files, stored runs and results in memory."""
