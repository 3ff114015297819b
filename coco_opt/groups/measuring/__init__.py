"""What runs before the noise is added: reading and counting the private table, and evaluating queries on it."""
