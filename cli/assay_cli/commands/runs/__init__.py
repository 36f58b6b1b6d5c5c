"""`assay runs`: stored runs listed, shown, followed, controlled and removed."""
