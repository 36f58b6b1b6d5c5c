"""Report writers, one module per format. A report file is either complete or absent."""
