"""JSON, and JSON Schema."""
