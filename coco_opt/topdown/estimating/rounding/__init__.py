"""Integer tables near fractional ones, with every sum kept."""
