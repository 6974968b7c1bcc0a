"""Reports of ``verilocc cost`` and ``verilocc compare``."""
