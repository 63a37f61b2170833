"""A running ingest as people and programs see it."""
