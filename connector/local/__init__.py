"""A real Kafka cluster on this machine, for development, demonstrations and tests."""
