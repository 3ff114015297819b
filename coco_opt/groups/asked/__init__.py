"""What runs before the noise: reading and counting the private table, and asking it. The wall stands behind it."""
