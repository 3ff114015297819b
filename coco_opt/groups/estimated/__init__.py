"""What runs after the noise: estimates from sealed measurements alone."""
