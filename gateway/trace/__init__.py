"""A turn's steps as a person reads them: fetched from Redis, as a table, as a chart."""
