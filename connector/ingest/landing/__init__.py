"""Lands micro-batches in tables, each table independently of the others."""
