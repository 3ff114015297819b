"""The posterior of the counts of an ordered domain, given all noisy counts of its intervals."""
