"""``gravity config …``: the configuration centre from the command line."""
