"""How often verdicts, intervals and plans are wrong, measured where the truth is known.

Rates are enumerated where that is possible and simulated otherwise, always by the functions that Assay itself uses.
`python -m benchmarks.error_rates` measures them, `python -m benchmarks.error_rates.tables` writes the tables of
docs/statistics.md.
"""
