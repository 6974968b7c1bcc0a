"""What the texts before and after allocation show: pressure, where live ranges are, and why a kernel spills.

For people. No verdict rests on it.
"""
