"""Files: tables of the user brought in without guessing, and folders of measurements and releases written whole."""
