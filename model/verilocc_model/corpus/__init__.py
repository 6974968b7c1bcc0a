"""The corpus: kernels of several sources, their allocation problems, and labels that are proved before they enter.

``cells`` says which kernels there are, ``sources`` make their LLVM IR, ``ir`` keeps it, ``kernel_list`` writes down a
fixed choice of them; ``problems``, ``labels``, ``split`` and ``build`` make the data set.
"""
