"""What runs after the noise: estimates of any range, of quantiles, and of a multiset of counts."""
