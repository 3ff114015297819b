"""The linear stage: estimates of all answers by generalised least squares, from noisy answers and exact constraints."""
