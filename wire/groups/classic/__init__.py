"""A member of the classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and assignments by the group's leader."""
