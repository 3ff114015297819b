"""What runs before the noise: the private values, the question asked of them, and the noise itself."""
