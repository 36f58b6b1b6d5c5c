"""Building cases from records, checking them and giving them ids."""
