"""The generated stubs of `protos/assay/embedder/v1`; see `make protos`."""
