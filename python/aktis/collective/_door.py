"""The one door of `aktis.collective` to the native part."""

from aktis._native import CollectiveFailure, CollectiveGroup, CollectiveSeat

__all__ = ["CollectiveFailure", "CollectiveGroup", "CollectiveSeat"]
