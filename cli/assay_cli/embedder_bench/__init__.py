"""Measurements of `assay bench embedder`: a private embedder over gRPC, and sentence-transformers for comparison."""
