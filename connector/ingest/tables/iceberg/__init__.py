"""Iceberg tables, through pyiceberg."""
