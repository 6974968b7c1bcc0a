"""The client's side of the gRPC service: how to reach a server, its messages, and the allocator behind it.

``access`` is plain data. ``cached_allocator.remote_allocator`` is the way in. All else here needs the extra
``service``.
"""
