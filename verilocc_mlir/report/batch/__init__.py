"""What ``verilocc compile-many`` did: data, JSON with its schema, and the summary for people."""
