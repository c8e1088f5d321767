"""``gravity bench gateway``: what the gateway costs, beside other proxies and beside no proxy at all."""
