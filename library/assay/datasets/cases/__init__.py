"""Cases: made from records, checked, and given ids."""
