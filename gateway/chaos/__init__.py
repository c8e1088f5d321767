"""The command ``gravity chaos``: a stack of its own, under load, whose processes are paused and killed."""
