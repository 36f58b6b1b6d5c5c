"""Report writers, one format a file; every file is complete or absent."""
