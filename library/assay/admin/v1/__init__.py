"""The generated stubs of `protos/assay/admin/v1`, public as those of `assay.v1`; see `make protos`."""
