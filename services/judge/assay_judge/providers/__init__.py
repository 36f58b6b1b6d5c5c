"""The providers of models: one file each, behind one protocol."""
