"""Avro: decoded in columns, and where that does not go, row by row; encoded row by row."""
