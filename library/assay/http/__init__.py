"""HTTP/1.1 connections that pair each reply with its own request."""
