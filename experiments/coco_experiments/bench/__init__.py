"""The performance table: kernels and certified solves beside their peers, timed alternately in one run."""
