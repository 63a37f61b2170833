"""Changes of rows by key, including Debezium's."""
