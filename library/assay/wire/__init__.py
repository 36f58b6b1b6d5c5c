"""Plain objects to protobuf messages and back, without loss."""
