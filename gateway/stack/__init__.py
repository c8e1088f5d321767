"""Valkey, a worker and the gateway as child processes that never outlive their parent."""
