"""Changes of rows by key, and Debezium's."""
