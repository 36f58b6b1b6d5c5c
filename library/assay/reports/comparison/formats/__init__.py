"""Writers of comparison reports, one module per format."""
