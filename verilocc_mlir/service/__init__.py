"""The gRPC service: the contract of proto/ served by worker processes. Needs the extra ``service``.

``jobs`` does the work, in a worker (``worker``, ``pool``) or in this process; ``server`` is the front;
``security``, ``observed`` and ``logs`` are what their names say. ``verilocc_mlir.remote`` is the client's
side.
"""
