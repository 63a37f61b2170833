"""How JSON documents become columns."""
