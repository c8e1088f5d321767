"""The command ``gravity bench soak``: mixed load for a long time, and what is left of it."""
