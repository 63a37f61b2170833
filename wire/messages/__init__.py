"""Every message of the Kafka protocol that this client speaks, declared as data, one module an API family."""
