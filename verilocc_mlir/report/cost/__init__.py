"""Tables of ``verilocc cost`` and ``verilocc compare``."""
