"""``gravity diagnose``: what is wrong with a turn, as a person would say it."""
