"""Kafka transactions, in both versions of their protocol."""
