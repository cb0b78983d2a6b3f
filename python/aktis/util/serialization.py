"""Serialisers of your own, for classes that pickle cannot handle, or not well.

    class Connection:
        def __init__(self, address: str) -> None:
            self.address = address
            self.socket = open_socket(address)

    register_serializer(Connection, serializer=lambda c: c.address, deserializer=Connection)

A serialiser applies to the process that registers it. The deserialiser travels with the value, so that the
process which reads it needs no registration.
"""

from aktis._serialization import deregister_serializer, register_serializer

__all__ = ["deregister_serializer", "register_serializer"]
