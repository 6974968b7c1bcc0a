"""``verilocc``: a thin shell over the library. Modules are loaded when a command needs them."""
