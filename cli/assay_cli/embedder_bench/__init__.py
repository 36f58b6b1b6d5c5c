"""What `assay bench embedder` measures: a private embedder over the wire, and sentence-transformers beside it."""
