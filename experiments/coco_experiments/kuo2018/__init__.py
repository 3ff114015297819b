"""Experiments of Kuo, Chiu, Kifer, Hay and Machanavajjhala 2018 (the VLDB paper and its poster)."""
