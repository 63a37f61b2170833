"""Who the client is and whom it talks to: SASL mechanisms, TLS, and where secrets come from."""
