"""Error rates of verdicts, intervals and plans, measured on data with a known truth.

Rates are enumerated if possible and simulated otherwise, always with the functions that Assay itself uses.
`python -m benchmarks.error_rates` measures them, `python -m benchmarks.error_rates.tables` writes the tables of
docs/statistics.md.
"""
