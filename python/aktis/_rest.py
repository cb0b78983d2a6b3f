"""The rest of a long `wait`: a list of references that copies them only when it is used as a list.

`while refs: done, refs = wait(refs)` would copy the whole rest for each reference otherwise.
"""

from collections.abc import Callable, Iterable
from typing import Any, Self

from aktis._engine import native


class ReferenceList(list[Any]):
    """A list in every respect; what is pickled or copied of it is a plain one."""

    __slots__ = ("_rest",)

    _rest: native.Rest

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return list, (self[:],)


class RestList(ReferenceList):
    """The same before it has its elements. Each use but `len`, `append` and `wait` fills it, and makes it a
    `ReferenceList`, which has the methods of `list` itself."""

    __slots__ = ()

    def _fill(self) -> None:
        """Called by the class: another thread may have filled it, and changed the class, meanwhile."""
        self._rest.fill(self)
        self.__class__ = ReferenceList  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._rest) or super().__len__()

    def append(self, item: Any, /) -> None:
        if not self._rest.append(item):
            RestList._fill(self)
            list.append(self, item)

    def extend(self, items: Iterable[Any], /) -> None:
        for item in list(items):
            self.append(item)

    def __iadd__(self, items: Iterable[Any]) -> Self:  # type: ignore[misc]
        self.extend(items)
        return self

    def __radd__(self, other: list[Any]) -> list[Any]:
        RestList._fill(self)
        return other + self


def rest_list(rest: native.Rest) -> RestList:
    """The list of these references."""
    made = RestList.__new__(RestList)
    made._rest = rest
    return made


def _filling(name: str) -> Callable[..., Any]:
    of_list = getattr(list, name)

    def method(self: RestList, *args: Any, **kwargs: Any) -> Any:
        RestList._fill(self)
        return of_list(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = of_list.__doc__
    return method


OWN = {"__getattribute__", "__hash__", "__new__", "__class_getitem__"}

for _name in vars(list).keys() - vars(RestList).keys() - OWN:
    setattr(RestList, _name, _filling(_name))
