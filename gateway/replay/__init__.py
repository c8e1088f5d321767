"""Replay: a recorded turn run again and compared with its record."""
