"""HTTP/1.1 connections whose replies answer the request that they were sent for."""
