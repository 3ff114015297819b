"""What runs before the noise: private counts, the questions asked of them, and the choice of questions."""
