"""Values on their way: classes, exceptions, arrays, custom serialisers, what cannot travel."""

import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import io
import threading
import uuid

import numpy
import ray
from outcomes import kinds, show, start

start()


@ray.remote(num_cpus=0)
def same(value):
    return value


@ray.remote(num_cpus=0)
def call(function, *args):
    return function(*args)


@ray.remote(num_cpus=0, max_retries=0)
def raises(make):
    raise make()


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Slots:
    __slots__ = ("a",)

    def __init__(self):
        self.a = 5


class Custom:
    def __init__(self, value):
        self.value = value
        self.lock = threading.Lock()


class Counted:
    made = 0

    def __getstate__(self):
        return {"state": "given"}

    def __setstate__(self, state):
        self.__dict__.update(state, restored=True)


class Refuses(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")
        self.a = a


class Locked(Exception):
    def __init__(self):
        super().__init__("has a lock")
        self.lock = threading.Lock()


class Node:
    def __init__(self):
        self.me = self


Pair = collections.namedtuple("Pair", "a b")


def back(value):
    return ray.get(same.remote(value))


def is_same(value):
    return back(value) == value


for name, value in {
    "None": None,
    "a large int": 2**200,
    "a float": float("inf"),
    "a complex number": 1 + 2j,
    "text": "ä" * 1000,
    "bytes": b"\x00\xff" * 10,
    "a bytearray": bytearray(b"abc"),
    "a set": {1, 2},
    "a frozenset": frozenset([1]),
    "a range": range(3),
    "a slice": slice(1, 2),
    "an enum": Colour.RED,
    "a dataclass": Point(1, 2),
    "a named tuple": Pair(1, 2),
    "a date": datetime.datetime(2020, 1, 2, 3),
    "a decimal": decimal.Decimal("1.5"),
    "a uuid": uuid.UUID(int=5),
    "an OrderedDict": collections.OrderedDict(a=1),
    "a deque": collections.deque([1, 2]),
    "a Counter": collections.Counter("aab"),
    "a type": int,
    "an ellipsis": ...,
    "a numpy scalar": numpy.float32(1.5),
    "a dict with tuples": {(1, 2): [3, {4}]},
}.items():
    show(f"the same: {name}", lambda given=value: is_same(given))
show("slots", lambda: back(Slots()).a)
show("__getstate__", lambda: vars(back(Counted())))
show("a cycle", lambda: (lambda node: node.me is node)(back(Node())))
show("shared parts", lambda: (lambda pair: pair[0] is pair[1])(back([shared := [1], shared])))
show("a partial", lambda: ray.get(call.remote(functools.partial(pow, 2), 5)))
show("a closure", lambda: ray.get(call.remote((lambda n: lambda x: x + n)(3), 4)))
show("a local class", lambda: (lambda cls: type(back(cls())).__name__)(type("Local", (), {})))
show("a method", lambda: ray.get(call.remote(Point(1, 2).__eq__, Point(1, 2))))
show("a module", lambda: back(datetime).__name__)
show("StringIO", lambda: back(io.StringIO("text")).getvalue())
show("a lock", lambda: back(threading.Lock()))
show("a generator", lambda: back(number for number in range(2)))
show("a file", lambda: type(back(open(__file__))).__name__)  # noqa: SIM115
show("a thread", lambda: back(threading.Thread()))
show("a lock as a result", lambda: ray.get(ray.remote(num_cpus=0)(threading.Lock).remote(), timeout=20))
show(
    "a function with a lock",
    lambda: ray.get(ray.remote(num_cpus=0)((lambda lock: lambda: bool(lock))(threading.Lock())).remote()),
)
show("arrays", lambda: back(numpy.arange(6).reshape(2, 3)).tolist())
show(
    "an array in Fortran's order",
    lambda: back(numpy.asfortranarray(numpy.ones((100, 200)))).flags.f_contiguous,
)
show("an array of objects", lambda: back(numpy.array([1, "a", None], dtype=object)).tolist())
show("an array of records", lambda: back(numpy.zeros(2, dtype=[("a", "i4"), ("b", "f8")])).dtype.names)
show("an array of dates", lambda: str(back(numpy.array(["2020-01-01"], dtype="datetime64[D]"))[0]))
show("an empty array", lambda: back(numpy.zeros((0, 3))).shape)
show("a view with steps", lambda: back(numpy.arange(10)[::3]).tolist())
show("a masked array", lambda: back(numpy.ma.masked_array([1, 2], [0, 1])).tolist())
ray.util.register_serializer(
    Custom, serializer=lambda value: value.value, deserializer=lambda value: Custom(value + 1)
)
show("a custom serialiser", lambda: back(Custom(5)).value)
show("a custom serialiser, nested", lambda: back([Custom(1), Custom(2)])[1].value)
ray.util.deregister_serializer(Custom)
show("without it", lambda: back(Custom(5)))
show(
    "inspect_serializability",
    lambda: ray.util.inspect_serializability(threading.Lock(), print_file=io.StringIO())[0],
)
show("inspect_serializability of 1", lambda: ray.util.inspect_serializability(1, print_file=io.StringIO())[0])


def raised(make):
    try:
        ray.get(raises.remote(make), timeout=20)
    except BaseException as error:
        return error


show("raises: a subclass", lambda: kinds(raised(lambda: Refuses(1, 2))))
show("raises: its fields", lambda: raised(lambda: Refuses(1, 2)).a)
show("raises: its text", lambda: "1 and 2" in str(raised(lambda: Refuses(1, 2))))
show("raises: is an instance", lambda: isinstance(raised(lambda: KeyError("k")), KeyError))
show("raises: its cause", lambda: type(raised(lambda: KeyError("k")).cause).__name__)
show("raises: with a lock", lambda: kinds(raised(Locked)))
show("raises: with a lock, its cause", lambda: "isn't serializable" in str(raised(Locked).cause))
show("raises: OSError", lambda: raised(lambda: FileNotFoundError(2, "none", "file")).errno)
show(
    "raises: UnicodeDecodeError", lambda: kinds(raised(lambda: UnicodeDecodeError("utf8", b"x", 0, 1, "why")))
)
show("raises: StopIteration", lambda: kinds(raised(StopIteration)))
show("raises: GeneratorExit", lambda: kinds(raised(GeneratorExit)))
show("raises: a group", lambda: kinds(raised(lambda: ExceptionGroup("all", [ValueError(1)]))))


@ray.remote(num_cpus=0)
def chains():
    try:
        {}["missing"]
    except KeyError as error:
        raise ValueError("outer") from error


def chained():
    try:
        ray.get(chains.remote())
    except ValueError as error:
        return ["KeyError" in str(error), "outer" in str(error)]


show("raises from another", chained)
show("a large exception", lambda: kinds(raised(lambda: ValueError("x" * 1_000_000))))
show("an exception as a value", lambda: type(back(ValueError("v"))).__name__)
show("a remote function as a value", lambda: ray.get(call.remote(lambda f: ray.get(f.remote(9)), same)))
show("an actor class as a value", lambda: type(back(ray.remote(Point))).__name__ != "")
