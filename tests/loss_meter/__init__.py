"""The loss meter: neighbours replayed through the command line under one and the same noisy answers."""
