"""Readers of files and objects; they yield records with their place."""
