"""A member of the consumer group protocol of KIP-848: ConsumerGroupHeartbeat, and assignments made by the coordinator."""
