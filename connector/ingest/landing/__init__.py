"""Micro-batches into their tables, each table on its own."""
