"""Streaming writes with each micro-batch in one Kafka transaction, and a marker in it by which a repeated one is skipped."""
