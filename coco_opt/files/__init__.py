"""Files: the user's tables, read without guessing, and folders of measurements and releases, complete or absent."""
