"""Finding rows of a run for clients: pages under a filter and an order, counts, one case with its neighbours."""
