"""A release of tables of persons: planned on public input, paid for, measured, split from the root down, published."""
