"""The rest of a `wait` on a long list: quick to make, and a list in every respect."""

import copy
import operator
import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest

import aktis
from aktis._engine import native
from support import Latch

pytestmark = pytest.mark.usefixtures("shared_session")

LONG = 3000
LOOP_SECONDS_MAX = 3  # 0.1 s on a quiet machine; a copy of the rest for each reference takes 7 s


@aktis.remote
def waits(latch: Latch) -> None:
    latch.wait()


@aktis.remote
def same(refs: list[Any]) -> Any:
    return refs


def long_list() -> list[Any]:
    return [aktis.put(number) for number in range(LONG)]


def test_a_loop_over_many_ready_references_is_not_quadratic() -> None:
    refs = [aktis.put(number) for number in range(100_000)]
    expected = list(refs)
    taken = []
    begin = time.perf_counter()
    while refs:
        done, refs = aktis.wait(refs)
        taken += done
    assert time.perf_counter() - begin < LOOP_SECONDS_MAX
    assert taken == expected


@pytest.mark.parametrize("length", [1, 2, 127, 128, 129, 130, 300])
def test_a_loop_takes_every_reference_of_a_list_of_any_length(length: int) -> None:
    refs = [aktis.put(number) for number in range(length)]
    expected, taken = list(refs), []
    while refs:
        before = len(refs)
        done, refs = aktis.wait(refs)
        assert (len(done), len(refs)) == (1, before - 1)
        taken += done
    assert taken == expected


@pytest.mark.parametrize("length", [3, 300])
def test_a_reference_that_comes_twice_is_refused(length: int) -> None:
    refs = [aktis.put(number) for number in range(length)]
    with pytest.raises(ValueError, match="twice"):
        aktis.wait([*refs, refs[-1]])
    _, rest = aktis.wait(refs)
    rest.append(rest[0])
    with pytest.raises(ValueError, match="twice"):
        aktis.wait(rest)


def test_a_loop_passes_by_a_reference_that_is_not_ready(latch: Latch) -> None:
    slow = waits.remote(latch)
    ready = long_list()
    refs = [ready[0], slow, *ready[1:]]
    for expected in ready[:500]:
        done, refs = aktis.wait(refs)
        assert done == [expected]
    assert refs == [slow, *ready[500:]]
    latch.open()


READS: dict[str, Callable[[Any], Any]] = {
    "index": lambda refs: (refs[0], refs[-1], refs[5:9], refs.index(refs[7]), refs.count(refs[3])),
    "iterate": lambda refs: ([*refs], tuple(refs), set(refs), list(reversed(refs)), list(zip(refs, refs))),
    "compare": lambda refs: (refs == list(refs), list(refs) == refs, refs != [], refs[0] in refs),
    "equal on the right": lambda refs: operator.eq([1], refs),
    "join": lambda refs: refs + [1],
    "join on the right": lambda refs: [1] + refs,
    "join another one": lambda refs: refs + refs,
    "repeat": lambda refs: (refs * 2, 2 * refs),
    "length": lambda refs: (len(refs), bool(refs)),
    "copy": lambda refs: (refs.copy(), copy.copy(refs), list(refs), [].__add__(list(refs))),
    "repr": repr,
    "unpack": lambda refs: (lambda first, *rest: (first, rest))(*refs),
    "get": aktis.get,
    "pass": lambda refs: aktis.get(same.remote(refs)),
    "pickle": lambda refs: pickle.loads(pickle.dumps(refs)),
    "isinstance": lambda refs: isinstance(refs, list),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_the_rest_reads_as_a_list(read: Callable[[Any], Any]) -> None:
    refs = long_list()
    _, rest = aktis.wait(refs)
    assert read(rest) == read(refs[1:])


CHANGES: dict[str, Callable[[Any], Any]] = {
    "append": lambda refs: refs.append(refs_more[0]),
    "append twice the same": lambda refs: (refs.append(refs_more[0]), refs.append(refs_more[0])),
    "append something else": lambda refs: refs.append(None),
    "extend": lambda refs: refs.extend(iter(refs_more)),
    "extend by itself": lambda refs: refs.extend(refs),
    "add": lambda refs: operator.iadd(refs, refs_more),
    "insert": lambda refs: refs.insert(0, 1),
    "pop": lambda refs: (refs.pop(), refs.pop(0)),
    "remove": lambda refs: refs.remove(refs[9]),
    "delete": lambda refs: operator.delitem(refs, slice(1, 100)),
    "set": lambda refs: operator.setitem(refs, 2, 7),
    "reverse": lambda refs: refs.reverse(),
    "sort": lambda refs: refs.sort(key=lambda ref: ref.hex()),
    "repeat": lambda refs: operator.imul(refs, 2),
    "clear": lambda refs: refs.clear(),
    "begin anew": lambda refs: refs.__init__([1]),
}
refs_more: list[Any] = []


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_the_rest_changes_as_a_list_and_alone(change: Callable[[Any], Any]) -> None:
    refs_more[:] = [aktis.put(0), aktis.put(1)]
    refs = long_list()
    expected = refs[1:]
    _, older = aktis.wait(refs)
    _, rest = aktis.wait(older)
    change(older)
    change(expected)
    assert older == expected
    assert rest == refs[2:]
    assert len(older) == len(expected)


def test_lists_that_were_waited_for_keep_their_elements() -> None:
    refs = long_list()
    _, rest = aktis.wait(refs)
    lists = [rest]
    for _ in range(20):
        _, rest = aktis.wait(rest, num_returns=5)
        lists.append(rest)
    lengths = [len(each) for each in lists]
    assert lengths == [LONG - 1 - 5 * number for number in range(21)]
    for number, each in enumerate(lists):
        assert each == refs[1 + 5 * number :]
    assert aktis.wait(lists[0], num_returns=2) == (refs[1:3], refs[3:])


def test_a_long_chain_of_kept_lists_ends_without_a_deep_stack() -> None:
    refs = [aktis.put(number) for number in range(60_000)]
    _, first = aktis.wait(refs)
    rest = first
    while len(rest) > 2000:
        _, rest = aktis.wait(rest)
    del rest
    assert len(first) == 59_999
    del first


def test_an_appended_reference_is_waited_for() -> None:
    refs = long_list()
    more = [aktis.put(number) for number in range(100)]
    expected = refs + more
    for new in more:
        done, refs = aktis.wait(refs)
        refs.append(new)
        assert done == [expected.pop(0)]
    assert refs == expected
    with pytest.raises(ValueError, match="twice"):
        refs.append(refs[0])
        aktis.wait(refs, num_returns=5)


def test_many_scattered_references_become_ready(latch: Latch) -> None:
    ready = long_list()
    slow = [waits.remote(latch) for _ in range(20)]
    refs = [ref for pair in zip(ready, slow) for ref in pair] + ready[20:]
    _, refs = aktis.wait(refs, num_returns=2)
    done, rest = aktis.wait(refs, num_returns=40)
    assert (done, rest) == (ready[2:42], slow + ready[42:])
    assert aktis.wait(rest, num_returns=len(rest), timeout=0) == (ready[42:], slow)
    latch.open()
    assert aktis.wait(rest, num_returns=len(rest)) == (rest, [])


def test_references_that_were_taken_are_released() -> None:
    refs = long_list()
    first = refs[0].hex()
    _, refs = aktis.wait(refs)
    _, refs = aktis.wait(refs)
    assert first not in native.reference_counts()
    assert len(native.reference_counts()) >= LONG - 2
