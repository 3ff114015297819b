"""The HTML report of a release: one file, no network, nothing that the release does not show."""
