"""Tables that topics land in, whatever their format."""
