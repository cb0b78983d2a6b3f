"""Arguments that do not fit are refused as Python itself would (behaviour 2); Python is the oracle."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aktis import _signature


def nothing() -> None: ...
def one(a: Any) -> None: ...
def defaults(a: Any, b: Any = 1) -> None: ...
def positional_only(a: Any, b: Any = 1, /, c: Any = 2) -> None: ...
def keyword_only(a: Any, *, b: Any, c: Any = 1) -> None: ...
def variadic(a: Any, *b: Any) -> None: ...
def keywords(a: Any, **c: Any) -> None: ...
def positional_name_in_keywords(a: Any, /, **c: Any) -> None: ...
def everything(a: Any, /, b: Any, c: Any = 1, *args: Any, d: Any, e: Any = 2, **more: Any) -> None: ...


@functools.wraps(defaults)
def wrapped(*args: Any, **kwargs: Any) -> None: ...


FUNCTIONS: list[Callable[..., None]] = [
    nothing,
    one,
    defaults,
    positional_only,
    keyword_only,
    variadic,
    keywords,
    positional_name_in_keywords,
    everything,
    wrapped,
]


def fits(signature: inspect.Signature, args: list[int], kwargs: dict[str, int]) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
@given(
    args=st.lists(st.integers(), max_size=5),
    kwargs=st.dictionaries(st.sampled_from("abcdex"), st.integers(), max_size=4),
)
def test_the_same_calls_fit(function: Callable[..., None], args: list[int], kwargs: dict[str, int]) -> None:
    parameters = _signature.parameters(function, function.__name__)
    wanted = fits(inspect.signature(function), args, kwargs)
    try:
        parameters.bind(*args, **kwargs)
        found = True
    except TypeError as error:
        assert str(error).startswith(f"{function.__name__}() ")
        found = False
    assert found == wanted
    if not kwargs:
        # What the native part looks at before it asks.
        minimum, maximum = parameters.bounds()
        assert (minimum <= len(args) and (maximum < 0 or len(args) <= maximum)) == wanted


def test_messages_name_the_argument() -> None:
    parameters = _signature.parameters(everything, "f")
    for args, kwargs, message in [
        ((), {"d": 1}, "missing a required argument: 'a', 'b'"),
        ((1, 2), {}, "missing a required argument: 'd'"),
        ((1, 2), {"b": 1, "d": 1}, "multiple values for argument 'b'"),
    ]:
        with pytest.raises(TypeError, match=message):
            parameters.bind(*args, **kwargs)
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        _signature.parameters(one, "f").bind(1, z=1)
    with pytest.raises(TypeError, match="too many positional arguments"):
        _signature.parameters(one, "f").bind(1, 2)


def test_self_is_left_out() -> None:
    class Class:
        def method(self, a: Any) -> None: ...

    parameters = _signature.parameters(Class.method, "method", skip=1)
    assert parameters.positional == ("a",)
    assert parameters.bounds() == (1, 1)


def test_what_cannot_be_inspected_takes_anything() -> None:
    parameters = _signature.parameters(dict, "dict")
    parameters.bind(1, 2, 3)


def test_kinds_of_functions() -> None:
    def generator() -> Any:
        yield

    async def coroutine() -> None: ...

    async def asynchronous_generator() -> Any:
        yield

    assert [_signature.is_generator(f) for f in (nothing, generator, coroutine, asynchronous_generator)] == [
        False,
        True,
        False,
        True,
    ]
    assert [_signature.is_async(f) for f in (nothing, generator, coroutine, asynchronous_generator)] == [
        False,
        False,
        True,
        True,
    ]
    assert _signature.is_generator(functools.partial(generator))


def test_parameters_travel() -> None:
    import pickle

    parameters = _signature.parameters(everything, "f")
    assert _signature.Parameters(*pickle.loads(pickle.dumps(tuple(parameters)))) == parameters
