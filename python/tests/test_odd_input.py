"""Odd input: unusual callables, values, names, numbers and references."""

import collections
import dataclasses
import enum
import functools
import math
import operator
import os
import pickle
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import aktis
from aktis import exceptions
from support import Caller, Latch, calls, get, identity

pytestmark = pytest.mark.usefixtures("shared_session")

# --- callables ------------------------------------------------------------------------------------


class Adder:
    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, x: int) -> int:
        return self.number + x

    def add(self, x: int) -> int:
        return self.number + x

    @staticmethod
    def add_one(x: int) -> int:
        return x + 1

    @classmethod
    def make(cls, x: int) -> int:
        return cls(1).add(x)


def nested(number: int) -> Callable[[int], int]:
    def outer(x: int) -> int:
        def inner(y: int) -> int:
            return y + number

        return inner(x)

    return outer


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1,
        nested(1),
        Adder.add_one,
        functools.wraps(nested)(lambda *args: args[0] + 1),
    ],
    ids=["lambda", "nested", "static", "wrapped"],
)
def test_functions_of_all_kinds(function: Any) -> None:
    assert get(aktis.remote(function).remote(1)) == 2
    assert get(calls.remote(function, 1)) == 2


@pytest.mark.parametrize(
    "function",
    [
        functools.partial(operator.add, 1),
        Adder(1),
        Adder(1).add,
        Adder.make,
        math.sqrt,
        "text".upper,
        operator.itemgetter(1),
        len,
        int,
    ],
    ids=["partial", "object", "bound", "class", "builtin", "method", "getter", "len", "type"],
)
def test_callables_that_are_no_functions(function: Any) -> None:
    """As arguments they are called like any other; as tasks they run, or are refused with a hint."""
    arguments: dict[Any, Any] = {"text".upper: (), len: ([1],)}
    given = arguments.get(function, ((1, 2),) if isinstance(function, operator.itemgetter) else (1,))
    assert get(calls.remote(function, *given)) == function(*given)
    if isinstance(function, type):
        return  # a class makes an actor
    try:
        remote = aktis.remote(function)
    except TypeError as error:
        assert "hint:" in str(error)
    else:
        assert get(remote.remote(*given)) == function(*given)


def test_what_cannot_be_remote() -> None:
    for wrong in (None, 3, "f", [], aktis.put(1), identity, sys):
        with pytest.raises((TypeError, ValueError)):
            aktis.remote(wrong)


def test_many_arguments() -> None:
    @aktis.remote
    def collects(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        return args, kwargs

    names = {f"name_{number}": number for number in range(300)}
    assert get(collects.remote(*range(1000))) == (tuple(range(1000)), {})
    assert get(collects.remote(**names)) == ((), names)
    refs = [aktis.put(number) for number in range(500)]
    keywords = {name: aktis.put(value) for name, value in names.items()}
    assert get(collects.remote(*refs, **keywords)) == (tuple(range(500)), names)
    assert get(collects.remote(*[bytes(10_000)] * 300))[0] == (bytes(10_000),) * 300
    assert get(collects.remote(*[refs[0]] * 1000))[0] == (0,) * 1000

    @aktis.remote
    class Collector:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.given = args, kwargs

        def collect(self, *args: Any, **kwargs: Any) -> Any:
            return self.given, (args, kwargs)

    collector = Collector.remote(*range(1000), **names)
    given = (tuple(range(1000)), names)
    assert get(collector.collect.remote(*refs, *refs, **names)) == (
        given,
        (tuple(range(500)) * 2, names),
    )


def test_names_in_all_scripts() -> None:
    @aktis.remote
    def größe(größe_in_cm: int, *, имя: str = "", 名前: Any = None) -> Any:
        return größe_in_cm, имя, 名前

    assert get(größe.remote(3, имя="я", 名前="名")) == (3, "я", "名")
    with pytest.raises(TypeError, match="größe"):
        größe.remote(falsch=1)

    @aktis.remote
    class Größe:
        def mütze(self) -> str:
            return "mütze"

        def scheitert(self) -> None:
            raise ValueError("größe")

    actor = Größe.options(name="größe 🎩 'a/b\"\n").remote()
    assert get(actor.mütze.remote()) == "mütze"
    assert get(aktis.get_actor("größe 🎩 'a/b\"\n").mütze.remote()) == "mütze"
    with pytest.raises(ValueError, match="größe"):
        get(actor.scheitert.remote())
    environment = {"env_vars": {"GRÖSSE": "größe 🎩"}}
    read = calls.options(runtime_env=environment).remote(lambda: os.environ["GRÖSSE"])
    assert get(read) == "größe 🎩"


@pytest.mark.parametrize("name", ["x" * 100_000, "a\x00b", " ", "\ud800", "../../etc/passwd", "None"])
def test_bad_names(name: str) -> None:
    """A name is taken or refused; whatever is taken is found again."""
    try:
        actor = Caller.options(name=name).remote()
    except (ValueError, TypeError, UnicodeError) as error:
        assert str(error)
        with pytest.raises((ValueError, TypeError, UnicodeError)):
            aktis.get_actor(name)
        return
    assert get(actor.call.remote(int)) == 0
    assert aktis.get_actor(name) == actor
    with pytest.raises(ValueError):
        Caller.options(name=name).remote()
    aktis.kill(actor)


# --- values ---------------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = "red"


class Flags(enum.IntFlag):
    A = 1
    B = 2


Point = collections.namedtuple("Point", ["x", "y"])


class Typed(typing.NamedTuple):
    name: str
    value: int = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: int
    y: list[int] = dataclasses.field(default_factory=list)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a = 1


class Cyclic:
    def __init__(self) -> None:
        self.me = self


def same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (a == b or (a != a and b != b))


VALUES: list[Any] = [
    Color.RED,
    Flags.A | Flags.B,
    Point(1, [2]),
    Typed("t"),
    Frozen(1, [2]),
    "\ud800 alone",
    "\x00",
    "",
    b"",
    10**5000,
    -(2**63),
    2**63,
    2**64,
    float("nan"),
    float("-inf"),
    -0.0,
    1j,
    ...,
    NotImplemented,
    frozenset({1, (2, 3)}),
    bytearray(b"x"),
    range(3),
    slice(1, None),
    collections.OrderedDict(a=1),
    collections.defaultdict(list, a=[1]),
    collections.Counter("aab"),
    collections.deque([1, 2], maxlen=2),
    Color,
    int,
    len,
    Exception,
    typing.Any,
    list[int],
    [[[[[[1]]]]]],
    ((((((),),),),),),
    [[]] * 17,
    (None,) * 100,
    {"a": {"b": {"c": (1, [2, {3}])}}},
    True,
    [True, 1, 1.0],
    "x" * 5_000_000,
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_come_back(value: Any) -> None:
    actor = Caller.remote()
    for back in get(
        [
            identity.remote(value),
            identity.remote(aktis.put(value)),
            aktis.put(value),
            actor.call.remote(lambda x: x, value),
        ]
    ):
        assert same(back, value)
    (inside,) = get(identity.remote([value]))
    assert same(inside, value)
    if value == 0 and isinstance(value, float):
        assert math.copysign(1, get(identity.remote(value))) == -1


def test_values_that_refer_to_themselves() -> None:
    cyclic = get(identity.remote(Cyclic()))
    assert cyclic.me is cyclic
    items: list[Any] = [1]
    items.append(items)
    back = get(identity.remote(items))
    assert back[1] is back
    shared = [1]
    first, second = get(identity.remote([shared, shared]))
    first.append(2)
    assert second in ([1], [1, 2])
    slotted = get(identity.remote(Slotted()))
    assert slotted.a == 1
    assert not hasattr(slotted, "b")


def test_modules_and_code_as_values() -> None:
    assert get(calls.remote(lambda: math)) is math
    assert get(identity.remote(Color.RED)) is Color.RED
    assert get(calls.remote(lambda: Color.RED)) is Color.RED
    assert isinstance(get(calls.remote(lambda: Frozen(1))), Frozen)
    assert get(calls.remote(lambda x: isinstance(x, Frozen), Frozen(1)))


def test_results_of_local_classes() -> None:
    def makes() -> Any:
        @dataclasses.dataclass
        class Local:
            x: int

            def double(self) -> int:
                return 2 * self.x

        class Kind(enum.Enum):
            A = 1

        return Local(4), Kind.A

    local, kind = get(calls.remote(makes))
    assert local.double() == 8
    assert kind.name == "A"
    again, _ = get(identity.remote((local, kind)))
    assert again.double() == 8
    assert type(again) is type(local), "a class that came by value stays one class"


def test_classes_of_actors_of_all_kinds() -> None:
    @aktis.remote
    class Odd:
        __slots__ = ("__weakref__", "items")

        def __init__(self) -> None:
            self.items: list[int] = []

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return lambda: f"made up: {name}"

        @property
        def raising(self) -> int:
            raise RuntimeError("must not be read")

        def add(self, item: int) -> int:
            self.items.append(item)
            return len(self.items)

        def asks(self) -> Any:
            return self.whatever()

    odd = Odd.remote()
    assert get([odd.add.remote(1), odd.add.remote(2), odd.asks.remote()]) == [1, 2, "made up: whatever"]
    with pytest.raises(AttributeError):
        odd.whatever.remote()

    @aktis.remote
    @dataclasses.dataclass
    class Data:
        x: int
        y: int = 2

        def sum(self) -> int:
            return self.x + self.y

    assert get(Data.remote(1).sum.remote()) == 3

    class Meta(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            made = super().__call__(*args, **kwargs)
            made.tag = "meta"
            return made

    @aktis.remote
    class WithMeta(metaclass=Meta):
        tag = ""

        def get(self) -> str:
            return self.tag

    assert get(WithMeta.remote().get.remote()) == "meta"

    @aktis.remote
    class Nothing:
        pass

    with pytest.raises(AttributeError):
        Nothing.remote().anything


def test_a_method_that_replaces_methods() -> None:
    @aktis.remote
    class Changing:
        def method(self) -> int:
            return 1

        def change(self) -> None:
            self.method = lambda: 2  # type: ignore[method-assign]

        def remove(self) -> None:
            del self.method
            del type(self).method

    actor = Changing.remote()
    # What an instance calls by the name is not what callers mean: they call the class's method.
    assert get([actor.method.remote(), actor.change.remote(), actor.method.remote()]) == [1, None, 1]
    get(actor.remove.remote())
    with pytest.raises(AttributeError, match="method"):
        get(actor.method.remote())


MAIN = """
    import collections, dataclasses, enum
    import aktis, module_beside

    @dataclasses.dataclass
    class Data:
        x: int

    class Kind(enum.Enum):
        A = 1

    Pair = collections.namedtuple("Pair", "a b")
    STATE = {"n": 1}

    class Trouble(Exception):
        def __init__(self, code, *, text):
            super().__init__(text)
            self.code = code

    @aktis.remote
    def echo(value):
        assert isinstance(value, (Data, Kind, Pair)), type(value)
        return value

    @aktis.remote
    def state():
        STATE["n"] += 1
        return STATE["n"]

    @aktis.remote
    def fails():
        raise Trouble(7, text="here")

    @aktis.remote
    class Actor:
        def make(self):
            return Data(5), module_beside.Beside(6)

    def main():
        for value in (Data(1), Kind.A, Pair(1, 2)):
            back = aktis.get(echo.remote(value))
            assert back == value and type(back) is type(value), (back, value)
        assert aktis.get(echo.remote(Kind.A)) is Kind.A
        assert aktis.get(state.remote()) == 2 and STATE == {"n": 1}
        try:
            aktis.get(fails.remote())
        except Trouble as error:
            assert error.code == 7
        data, beside = aktis.get(Actor.remote().make.remote())
        assert type(data) is Data and type(beside) is module_beside.Beside
        assert aktis.get(aktis.remote(module_beside.function).remote(2)) == 4
        assert aktis.get(module_beside.decorated.remote(2)) == 6
        print("well")

    if __name__ == "__main__":
        main()
"""


def test_functions_of_the_program_and_of_modules(tmp_path: Path, run_script: Any) -> None:
    (tmp_path / "module_beside.py").write_text(
        "import aktis\n"
        "class Beside:\n    def __init__(self, x): self.x = x\n"
        "def function(x): return helper(x)\n"
        "def helper(x): return 2 * x\n"
        "@aktis.remote\ndef decorated(x): return 3 * x\n"
    )
    assert run_script(MAIN).stdout == "well\n"


# --- modules that are not there -------------------------------------------------------------------


def test_import_errors_in_workers(tmp_path: Path, run_script: Any) -> None:
    (tmp_path / "only_here.py").write_text(
        "import os\n"
        "if 'WORKER' in os.environ: raise RuntimeError('not in workers')\n"
        "def function(): return 1\n"
        "class Actor:\n    def method(self): return 1\n"
    )
    done = run_script("""
        import sys, types
        import aktis, only_here
        ghost = types.ModuleType("ghost")
        exec("def function(): return 1\\nclass Actor:\\n    def method(self): return 1", ghost.__dict__)
        sys.modules["ghost"] = ghost
        aktis.init(num_cpus=1, runtime_env={"env_vars": {"WORKER": "1"}})
        for module, kind in ((ghost, "ModuleNotFoundError"), (only_here, "RuntimeError")):
            for _ in range(2):
                try:
                    aktis.get(aktis.remote(module.function).remote(), timeout=20)
                except Exception as error:
                    assert isinstance(error, aktis.exceptions.TaskError), type(error)
                    said = module.__name__ in str(error) or "not in workers" in str(error)
                    print(type(error).__name__, said)
            try:
                aktis.get(aktis.remote(module.Actor).remote().method.remote(), timeout=20)
            except aktis.exceptions.ActorDiedError as error:
                print(kind in str(error))
        @aktis.remote
        def fine(): return "fine"
        print(aktis.get(fine.remote(), timeout=20))
    """)
    assert done.stdout.splitlines() == [
        "TaskError(ModuleNotFoundError) True",
        "TaskError(ModuleNotFoundError) True",
        "True",
        "TaskError(RuntimeError) True",
        "TaskError(RuntimeError) True",
        "True",
        "fine",
    ], done.stdout + done.stderr


def test_a_large_closure_that_is_allowed() -> None:
    large = os.urandom(20 << 20)

    @aktis.remote
    def sizes() -> int:
        return len(large)

    assert get([sizes.remote(), sizes.remote()]) == [20 << 20] * 2


# --- numbers and times ----------------------------------------------------------------------------


def test_odd_timeouts(latch: Latch) -> None:
    ready = aktis.put(1)
    slow = calls.remote(lambda latch: latch.wait(), latch)
    for wrong, kind in (
        ("1", TypeError),
        (True, TypeError),
        ([], TypeError),
        (-1, ValueError),
        (-1e-9, ValueError),
        (float("nan"), ValueError),
        (float("-inf"), ValueError),
    ):
        for call in (
            lambda t=wrong: aktis.get(ready, timeout=t),
            lambda t=wrong: aktis.wait([ready], timeout=t),
        ):
            with pytest.raises(kind):
                call()
    for fine in (0, 0.0, 1e-9, 1e9, 1e300, float("inf"), 10**30, sys.maxsize):
        assert aktis.get(ready, timeout=fine) == 1
        assert aktis.get([ready, ready], timeout=fine) == [1, 1]
        assert aktis.wait([ready], timeout=fine) == ([ready], [])
    for short in (0, 1e-9, 0.01):
        with pytest.raises(exceptions.GetTimeoutError):
            aktis.get(slow, timeout=short)
        assert aktis.wait([slow], timeout=short) == ([], [slow])
    latch.open()
    assert aktis.get(slow, timeout=float("inf")) is None


def test_nothing_at_all() -> None:
    assert aktis.get([]) == []
    assert aktis.get([], timeout=0) == []
    assert aktis.wait([]) == ([], [])
    assert get(calls.options(num_returns=0).remote(int) or []) == []
    for wrong in ((), {}, None, iter([]), "", [None], [[]], {aktis.put(1)}):
        with pytest.raises((TypeError, ValueError)):
            aktis.get(wrong)
        with pytest.raises((TypeError, ValueError)):
            aktis.wait(wrong)


# --- references on their own ----------------------------------------------------------------------


def test_references_through_plain_pickle(session: Any) -> None:
    """Nobody knows how long the bytes live, so the object lives as long as the session."""

    def reads(data: bytes) -> Any:
        return aktis.get(pickle.loads(data), timeout=10)

    for value in (5, bytes(1_000_000)):
        for dumps in (pickle.dumps, cloudpickle.dumps):
            ref = aktis.put(value)
            data = dumps(ref)
            assert pickle.loads(data) == ref
            del ref
            assert get(pickle.loads(data)) == value
            assert get(calls.remote(reads, data)) == value
            made = get(calls.remote(lambda value: pickle.dumps(aktis.put(value)), value))
            assert get(pickle.loads(made)) == value
    aktis.shutdown()
    aktis.init(num_cpus=1)
    with pytest.raises(exceptions.AktisError):
        aktis.get(pickle.loads(data), timeout=1)


def test_references_that_never_were() -> None:
    for nonsense in (b"\x01" * 16, bytes(16)):
        ref = aktis._engine.native.object_from_id(nonsense)
        with pytest.raises(exceptions.AktisError):
            aktis.get(ref, timeout=1)
    for wrong in (b"", b"short", bytes(17)):
        with pytest.raises(ValueError):
            aktis._engine.native.object_from_id(wrong)
