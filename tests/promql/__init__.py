"""What of Prometheus the alert rules need: its query language as far as they use it, series, and alerts.

It is strict: what it does not know is an error, and never an empty result. Checked against examples worked by hand, and
against `promtool test rules` where that is on PATH.
"""
