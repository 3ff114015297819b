"""Consistency with external knowledge: the slides on TopDown (Kifer 2019)."""
