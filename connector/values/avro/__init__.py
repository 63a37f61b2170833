"""Avro, decoded and encoded row by row."""
