"""Everything before the noise: private counts, the queries on them, and the choice of queries."""
