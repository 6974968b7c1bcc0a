"""The gRPC service: the contract of proto/ served by worker processes, and the client's side of it.

``wire`` turns data into messages and back; ``jobs`` does the work, in a worker (``worker``, ``pool``) or in this
process; ``server`` is the front; ``security``, ``metrics``, ``tracing`` and ``logs`` are what its name says; ``client``
talks to a server. Needs the extra ``service``.
"""
