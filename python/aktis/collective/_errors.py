"""What collective operations raise, and how the native part's failures become exceptions."""

from collections.abc import Iterator
from contextlib import contextmanager

from aktis.collective._door import CollectiveFailure
from aktis.exceptions import AktisError

__all__ = ["CollectiveError", "CollectiveTimeoutError", "MemberDiedError", "MismatchError", "translated"]


class CollectiveError(AktisError):
    """A collective operation did not succeed, and its group is broken: each later operation raises the same.

    `rank` is the member that is the reason, where it is one.
    """

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message, rank)
        self.message = message
        self.rank = rank

    def __str__(self) -> str:
        return self.message


class MemberDiedError(CollectiveError):
    """A member has died or left; `rank` says which one. `Group.regroup` goes on without it."""


class CollectiveTimeoutError(CollectiveError, TimeoutError):
    """Members did not come in time. The text names them."""


class MismatchError(CollectiveError, ValueError):
    """Members did different things: other operations, sizes or types."""


_KINDS: dict[str, type[CollectiveError]] = {
    "died": MemberDiedError,
    "timed out": CollectiveTimeoutError,
    "mismatch": MismatchError,
    "interrupted": CollectiveError,
    "setup": CollectiveError,
}


@contextmanager
def translated() -> Iterator[None]:
    """Raises what the native part refuses as one of the exceptions above; ValueError for bad arguments."""
    try:
        yield
    except CollectiveFailure as failure:
        raise exception_of(failure) from None


def exception_of(failure: CollectiveFailure) -> Exception:
    """The exception for a failure of the native part."""
    kind, rank, message = failure.args
    if kind == "invalid":
        return ValueError(message)
    return _KINDS[kind](message, rank)
