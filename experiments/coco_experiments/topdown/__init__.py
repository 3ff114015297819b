"""Hierarchical tables by TopDown (Kifer 2019): error by level and query, and what the noise model is worth."""
