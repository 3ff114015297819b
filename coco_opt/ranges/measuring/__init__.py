"""What runs up to the noise: reading the private values, planning the queries, and adding the noise."""
