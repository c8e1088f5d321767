"""Two small experiments on a real worker: entropy-driven k, and gravity by keywords."""
