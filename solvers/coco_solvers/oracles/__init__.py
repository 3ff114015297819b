"""Slow exact references for tiny instances, sharing no code with the kernels."""
