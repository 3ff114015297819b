"""The performance table: kernels and certified solves next to their peers, timed alternately in one run."""
