"""The generated stubs of `protos/assay/admin/v1`; see `make protos`."""
