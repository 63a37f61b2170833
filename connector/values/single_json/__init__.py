"""JSON's values in Python, one by one: text and numbers, what they mean as times and decimals, and VARIANT. Knows no columns."""
