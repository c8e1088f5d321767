"""``gravity experiment …``: what the arms of an experiment have done."""
