"""A schema registry over HTTP, and how Confluent's serializers put a schema's id before a value."""
