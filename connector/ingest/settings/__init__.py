"""The settings of an ingest."""
