"""Generated stubs of the contracts in `protos/assay/v1`; see `make protos`."""
