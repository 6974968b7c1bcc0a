"""What ``verilocc allocate`` got, as a table."""
