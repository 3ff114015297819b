"""The same data and the same budget through the systems that a user would pick instead, one task a file."""
