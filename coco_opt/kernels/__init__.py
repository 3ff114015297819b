"""Compiled loops on plain arrays, one algorithm in each file. Import only the module you need: each one loads numba."""
