"""Two workers of different settings under a mixed load, by who is sent where."""
