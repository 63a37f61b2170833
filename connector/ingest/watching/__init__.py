"""The status of a running ingest, for people and programs."""
