"""Experiments beyond the papers: better questions and the posterior."""
