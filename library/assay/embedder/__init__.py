"""The generated stubs of `protos/assay/embedder`."""
