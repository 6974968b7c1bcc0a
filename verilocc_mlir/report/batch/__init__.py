"""What ``verilocc compile-many`` did, as lines and a table."""
