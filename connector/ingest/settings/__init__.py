"""What an ingest does, as its user writes it."""
