"""The local stack: the same services as child processes on private unix sockets."""
