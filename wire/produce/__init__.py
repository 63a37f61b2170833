"""Batches to leaders, in order, once."""
