"""Estimation after the noise, from sealed measurements alone."""
