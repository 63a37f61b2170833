"""Kafka's messages as bytes: field types, message declarations, and the codec compiled from them."""
