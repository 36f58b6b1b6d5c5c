"""The generated stubs of `protos/assay/agent`."""
