"""What a streaming query has read: commits to its group, group membership, data loss."""
