"""The generated stubs of `protos/assay/v1`, for `Client.call` and for programs that call a service themselves.

They are public: a module, message or field keeps its name and meaning as the package `assay.v1` promises. The stubs
need the versions of grpcio and protobuf that Assay requires. `make protos` regenerates them.
"""
