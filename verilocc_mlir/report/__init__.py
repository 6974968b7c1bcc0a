"""Draws results (``verilocc_mlir.results``) for people: tables, plain text, HTML with pictures, SARIF."""
