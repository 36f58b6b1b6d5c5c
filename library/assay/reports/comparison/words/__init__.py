"""Wording that the formats of a comparison share: sentences, figures and tables."""
