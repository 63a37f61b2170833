"""What is checked before Spark starts."""
