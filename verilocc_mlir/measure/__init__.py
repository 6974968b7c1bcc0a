"""Two codes of one kernel, run in turns on one device, and which of them is faster.

``statistics`` decides, ``runner`` takes turns, ``journal`` keeps; devices are ``hip_device``, ``iree`` and ``replay``.
"""
