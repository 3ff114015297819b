"""Flaxman 2019: empirical privacy loss of counting mechanisms."""
