"""What runs after the noise: integer tables and linear estimates from a measurement, and from nothing else."""
