"""The generated stubs of `protos/assay/judge`."""
