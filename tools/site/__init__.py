"""Builds the documentation as a static site: `make docs` runs `python -m tools.site`."""
