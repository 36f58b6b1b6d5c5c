"""The generated stubs of `protos/assay/judge/v1`, without a promise; see `make protos`."""
