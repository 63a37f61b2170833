"""Tables that topics land in: what they are to the ingest, whatever their format."""
