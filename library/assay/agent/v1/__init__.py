"""The generated stubs of `protos/assay/agent/v1`, public as those of `assay.v1`; see `make protos`."""
