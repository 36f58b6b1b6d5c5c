"""Writers of comparison reports, one format a module."""
