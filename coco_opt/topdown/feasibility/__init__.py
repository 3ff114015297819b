"""What constraints imply, and whether any integer table meets them: from public values alone."""
