"""Lossless conversion between the data model and protobuf messages."""
