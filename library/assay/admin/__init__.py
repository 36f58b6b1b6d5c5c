"""The generated stubs of `protos/assay/admin`."""
