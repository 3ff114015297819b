"""Experiments: figures and tables of the papers, measured beside published, and the performance table."""
