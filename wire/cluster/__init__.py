"""Many brokers as one cluster: bootstrap, metadata, connections and retries; and requests about topics and groups."""
