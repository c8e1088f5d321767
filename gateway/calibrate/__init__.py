"""``gravity calibrate``: measures a task's entropies and proposes what follows from them."""
