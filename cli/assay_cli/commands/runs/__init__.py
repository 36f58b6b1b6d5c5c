"""`assay runs`: list, show, follow, control and delete stored runs."""
