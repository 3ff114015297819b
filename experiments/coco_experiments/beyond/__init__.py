"""Experiments beyond the papers: better queries and the posterior."""
