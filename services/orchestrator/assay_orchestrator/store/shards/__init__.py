"""Queries about shards, and the fair order in which workers take them."""
