"""One step down: a region's integer table is split among its children, alone or a level at a time, then rounded."""
