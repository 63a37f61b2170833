"""Reading: offsets are planned on the driver, records are fetched and decoded on the executors."""
