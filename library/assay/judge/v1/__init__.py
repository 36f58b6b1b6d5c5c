"""The generated stubs of `protos/assay/judge/v1`; see `make protos`."""
