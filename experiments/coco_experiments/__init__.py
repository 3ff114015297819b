"""Experiments: figures and tables of the papers, measured next to published, and the performance table."""
