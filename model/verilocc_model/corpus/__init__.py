"""The corpus: kernels of several sources, their allocation problems, and labels, each of them proved.

``cells`` and ``stream`` enumerate kernels, ``sources`` make their LLVM IR, ``ir`` stores it, ``kernel_list`` records a
fixed choice of them. ``problems``, ``labels``, ``split`` and ``build`` make the data set.
"""
