"""Consumer groups: who gets which partitions, a member's life, and committed offsets."""
