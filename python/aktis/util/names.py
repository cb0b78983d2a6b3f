"""Names in a session: of actors, and of this machine."""

from typing import Any

__all__ = ["get_node_ip_address", "list_named_actors"]


def list_named_actors(all_namespaces: bool = False) -> list[Any]:
    """The names of the living actors in this namespace.

    With `all_namespaces`, those of this one and of all that were given a name by their job:
    `[{"name": "inbox", "namespace": "prod"}, ..]`.
    """
    from aktis import _actor, _session
    from aktis.util._runtime import runtime

    here = _session.namespace()
    found = [_actor.split_name(full) for full in sorted(runtime().actor_names(here))]
    if all_namespaces:
        return [{"name": name, "namespace": namespace} for namespace, name in found]
    return [name for namespace, name in found if namespace == here]


def get_node_ip_address() -> str:
    """The address of this machine, as others reach it; 127.0.0.1 if it has no network."""
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: connecting a datagram socket only asks the routing table.
            probe.connect(("198.51.100.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
