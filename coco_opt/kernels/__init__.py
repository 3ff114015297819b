"""Compiled loops on plain arrays, one algorithm a file; import the module wanted (each one loads numba)."""
