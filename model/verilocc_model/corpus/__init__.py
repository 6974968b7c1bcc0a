"""The corpus: kernels of several sources, their allocation problems, and labels, each of them proved.

``cells`` and ``stream`` enumerate kernels and record a fixed choice of them, ``sources`` make their LLVM IR, ``ir``
stores it. ``labels`` and ``build`` make the data set, ``shards`` keep it.
"""
