"""The JSON form of each result."""
