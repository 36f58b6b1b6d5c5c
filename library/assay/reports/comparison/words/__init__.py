"""Sentences, figures and tables that the formats of a comparison share."""
