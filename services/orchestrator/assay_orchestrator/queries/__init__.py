"""Queries of a run's rows for clients: filtered and sorted pages, counts, and a case with its neighbours."""
