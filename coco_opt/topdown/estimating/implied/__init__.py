"""What constraints imply for the regions above, enforced on the way down: by the minimal schema, cuts or bounds."""
