"""The document of a run, from which every report is made."""
