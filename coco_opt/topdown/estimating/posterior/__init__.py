"""The posterior of all leaves' integer tables, given all noisy answers and everything that must hold."""
