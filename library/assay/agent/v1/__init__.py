"""The generated stubs of `protos/assay/agent/v1`; see `make protos`."""
