"""Which plan a kernel is compiled with (``verilocc_mlir.pipeline.plans``), learned from what each plan costs.

``facts`` says what is known of a kernel beforehand, ``labels`` makes the data, ``data`` reads it, ``policies`` choose,
``evaluate`` compares them.
"""
