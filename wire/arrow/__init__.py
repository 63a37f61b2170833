"""The kit below records and values: NumPy arrays as Arrow arrays, the bytes of many elements at once, varints in columns."""
