"""What runs after the noise: whole tables and linear estimates from a measurement, and from nothing else."""
