"""Actors, under the module's name that users of Ray import them from."""

from aktis._actor import ActorClass, ActorHandle, ActorMethod, exit_actor, method
from aktis.exceptions import ActorClassInheritanceException

__all__ = [
    "ActorClass",
    "ActorClassInheritanceException",
    "ActorHandle",
    "ActorMethod",
    "exit_actor",
    "method",
]
