"""What ``verilocc measure`` shows."""
