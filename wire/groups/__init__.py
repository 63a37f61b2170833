"""Consumer groups: assignment strategies, a member's states and requests, heartbeats, and committed offsets."""
