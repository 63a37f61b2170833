"""Authentication and encryption: SASL mechanisms, TLS, and secrets given by reference."""
