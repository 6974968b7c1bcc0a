"""Two codes of one kernel, run in turns on one device, and which of them is faster.

``runner`` takes turns and decides, ``journal`` keeps; devices are in ``hip`` and ``iree``, one that was
recorded in ``device``.
"""
