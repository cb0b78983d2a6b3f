"""Values come back as they were, type included; large buffers come back without a copy (behaviour 8)."""

import collections
import datetime
import decimal
import enum
import fractions
import math
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

import aktis
from support import wait_until

numpy = pytest.importorskip("numpy")

pytestmark = pytest.mark.usefixtures("shared_session")

LARGE = 20_000
"""Items that make an array too large to travel inside of messages."""


@aktis.remote
def echo(value: Any) -> Any:
    return value


@aktis.remote
def echo_inside(values: list[Any]) -> list[Any]:
    return values


def ways(value: Any) -> list[Any]:
    """What comes back of a value: through the store, as an argument and result, and inside of a container."""
    put, returned, [inside] = aktis.get([aktis.put(value), echo.remote(value), echo_inside.remote([value])])
    return [put, returned, inside]


def same(left: Any, right: Any) -> bool:
    """Whether two plain values are equal, of the same types, in all their parts."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        signs = math.copysign(1, left), math.copysign(1, right)
        return (left == right and signs[0] == signs[1]) or (math.isnan(left) and math.isnan(right))
    if isinstance(left, complex):
        return same(left.real, right.real) and same(left.imag, right.imag)
    if isinstance(left, (list, tuple, collections.deque)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return all(map(same, left.items(), right.items())) and len(left) == len(right)
    return bool(left == right)


# --- plain values -----------------------------------------------------------------------------

Point = collections.namedtuple("Point", "x y")
Colour = enum.Enum("Colour", "RED GREEN")


class Whole(int):
    pass


class Text(str):
    pass


class Items(list):  # type: ignore[type-arg]
    pass


class Pair(tuple):  # type: ignore[type-arg]
    __slots__ = ()


hashable = some.one_of(
    some.none(),
    some.booleans(),
    some.integers(),
    some.integers(min_value=2**63 - 2, max_value=2**64 + 2),
    some.integers(min_value=-(2**63) - 2, max_value=-(2**63) + 2),
    some.floats(allow_nan=False),
    some.text(some.characters(codec=None)),  # type: ignore[arg-type]
    some.binary(),
    some.decimals(allow_nan=False),
    some.fractions(),
    some.dates(),
    some.datetimes(timezones=some.just(datetime.UTC)),
    some.timedeltas(),
    some.uuids(),
    some.sampled_from(list(Colour)),
    some.integers().map(Whole),
    some.text().map(Text),
)
scalars = hashable | some.floats() | some.complex_numbers() | some.binary().map(bytearray)
plain = some.recursive(
    scalars,
    lambda inner: some.one_of(
        some.lists(inner, max_size=20),
        some.lists(inner, max_size=20).map(tuple),
        some.dictionaries(hashable, inner, max_size=5),
        some.sets(hashable, max_size=5),
        some.frozensets(hashable, max_size=5),
        some.lists(inner, max_size=3).map(Items),
        some.lists(inner, max_size=3).map(Pair),
        some.lists(inner, max_size=3).map(collections.deque),
        some.tuples(inner, inner).map(lambda both: Point(*both)),
    ),
    max_leaves=25,
)

thorough = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    database=None,
)


@thorough
@given(plain)
def test_what_went_in_comes_out(value: Any) -> None:
    for found in ways(value):
        assert same(found, value), (found, value)


@thorough
@given(some.lists(plain, max_size=4), some.dictionaries(some.text("abcé", min_size=1), plain, max_size=3))
def test_arguments_arrive_as_they_were(args: list[Any], kwargs: dict[str, Any]) -> None:
    @aktis.remote
    def call(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    assert same(aktis.get(call.remote(*args, **kwargs)), (tuple(args), kwargs))


@pytest.mark.parametrize(
    "size", [0, 1, 1023, 1024, 8191, 8192, 8193, 16_383, 16_384, 16_385, 100_000, 3_000_000]
)
@pytest.mark.parametrize("make", [bytes, bytearray, lambda size: "é" * size, lambda size: ["x"] * size])
def test_sizes_around_all_limits(make: Any, size: int) -> None:
    value = make(size)
    for found in ways(value):
        assert same(found, value)


def test_odd_numbers() -> None:
    for value in [-0.0, math.inf, -math.inf, 5e-324, 2**63, -(2**63), 2**64, 10**1000, True, Whole(1)]:
        assert all(same(found, value) for found in ways(value))
    assert all(math.isnan(found) for found in ways(math.nan))


def test_parts_that_are_one_stay_one() -> None:
    part = [1]
    value = [part, part, {"again": part}]
    for found in ways(value):
        assert found[0] is found[1] is found[2]["again"]
    loop: list[Any] = []
    loop.append(loop)
    found = aktis.get(aktis.put(loop))
    assert found[0] is found
    array = numpy.ones(LARGE)
    found = aktis.get(aktis.put([array, array]))
    assert found[0] is found[1]


def test_values_are_not_shared_with_the_one_who_gave_them() -> None:
    value = [1, [2]]
    ref = aktis.put(value)
    value[1].append(3)  # type: ignore[attr-defined]
    first = aktis.get(ref)
    assert first == [1, [2]]
    first.append(4)
    assert aktis.get(ref) == [1, [2]]


# --- numpy ------------------------------------------------------------------------------------


class Sub(numpy.ndarray):  # type: ignore[misc,name-defined]
    pass


numbers = numpy.arange(float(LARGE))

ARRAYS = {
    "plain": numbers,
    "two axes": numbers.reshape(100, -1),
    "Fortran's order": numpy.asfortranarray(numbers.reshape(100, -1)),
    "transposed": numbers.reshape(20, 10, -1).transpose(1, 2, 0),
    "with gaps": numbers.reshape(100, -1)[::2, 1::3],
    "backwards": numbers[::-1],
    "one value everywhere": numpy.broadcast_to(numpy.float64(1.5), (100, 200)),
    "no items": numpy.empty((0, LARGE)),
    "no axes": numpy.array(7.5),
    "one item": numpy.array([7.5]),
    "small": numpy.arange(5, dtype="i2"),
    "structured": numpy.array(
        [(1, 2.5, "abc")] * LARGE, dtype=[("a", "i4"), ("b", "f8"), ("c", "U3")], order="C"
    ),
    "structured, aligned": numpy.zeros(LARGE, dtype=numpy.dtype([("a", "i1"), ("b", "f8")], align=True)),
    "structured, nested": numpy.zeros(LARGE, dtype=[("a", "i4", (2, 2)), ("b", [("c", "f4")])]),
    "structured, with times": numpy.zeros(LARGE, dtype=[("at", "M8[s]"), ("b", "f4")]),
    "records": numpy.rec.array(numpy.zeros(LARGE, dtype=[("a", "i4")])),
    "times": numpy.arange(LARGE).astype("M8[us]"),
    "times, with gaps": numpy.arange(LARGE).astype("M8[us]")[::2],
    "times, of Fortran": numpy.asfortranarray(numpy.arange(LARGE).astype("M8[D]").reshape(10, -1)),
    "times, none": numpy.array(["NaT", "2020-02-29"], dtype="M8[s]"),
    "times, of old machines": numpy.arange(LARGE).astype(">M8[s]"),
    "spans": numpy.arange(LARGE).astype("m8[ns]"),
    "objects": numpy.array([1, "a", None, [2]] * 1000, dtype=object),
    "objects inside": numpy.array([(1, "x")] * 1000, dtype=[("a", "i4"), ("b", "O")]),
    "text": numpy.array(["abc", "é"] * LARGE),
    "bytes": numpy.array([b"abc", b"de"] * LARGE),
    "void": numpy.zeros(LARGE, dtype="V7"),
    "of old machines": numpy.arange(LARGE, dtype=">i4"),
    "bits": numpy.arange(LARGE) % 3 == 0,
    "complex": numbers + 1j,
    "half": numpy.arange(LARGE, dtype="f2"),
    "long": numpy.arange(LARGE, dtype=numpy.longdouble),
    "read-only": numpy.frombuffer(bytes(8 * LARGE)),
    "masked": numpy.ma.masked_array(numbers, mask=numbers % 2 == 0, fill_value=-1),
    "masked, nothing": numpy.ma.masked_array(numbers),
    "of a class of one's own": numbers.view(Sub),
}

# What numpy itself cannot send without a copy, or has nothing to send.
COPIED = {"no items", "no axes", "one item", "small", "records", "structured, with times", "times, none"}
COPIED |= {"objects", "objects inside", "masked", "masked, nothing", "of a class of one's own"}


def equal(left: Any, right: Any) -> bool:
    if left.dtype.hasobject:
        return bool(left.tolist() == right.tolist())
    if left.dtype.kind == "V":
        return bool(left.tobytes() == right.tobytes())
    return bool(numpy.array_equal(left, right, equal_nan=left.dtype.kind in "fcmM"))


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_come_back(name: str) -> None:
    array = ARRAYS[name]
    for found in ways(array):
        assert type(found) is type(array)
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert equal(numpy.asarray(found), numpy.asarray(array))
        if array.flags.f_contiguous and array.ndim > 1:
            assert found.flags.f_contiguous


@pytest.mark.parametrize("name", sorted(ARRAYS.keys() - COPIED))
def test_large_arrays_are_not_copied(name: str) -> None:
    ref = aktis.put(ARRAYS[name])
    first, second = aktis.get(ref), aktis.get(ref)
    assert first.ctypes.data == second.ctypes.data, "both are in the store"
    assert first.ctypes.data % 64 == 0
    assert not first.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        first[...] = first


def test_masks_come_back() -> None:
    masked = ARRAYS["masked"]
    for found in ways(masked):
        assert (found.mask == masked.mask).all() and found.fill_value == masked.fill_value
        assert found.sum() == masked.sum()


@pytest.mark.parametrize(
    "value", [numpy.float64(1.5), numpy.int8(-3), numpy.str_("é"), numpy.datetime64("NaT", "s")]
)
def test_scalars_and_types_come_back(value: Any) -> None:
    for found in ways(value):
        assert type(found) is type(value)
        assert found == value or found != found
    for found in ways(value.dtype):
        assert found == value.dtype


def test_an_array_outlives_its_reference() -> None:
    array = aktis.get(aktis.put(numpy.arange(LARGE)))
    part = array[10:20].reshape(2, 5)
    del array
    # Others would take its place if it had not been kept.
    refs = [aktis.put(numpy.zeros(LARGE)) for _ in range(20)]
    assert part.tolist() == [[10, 11, 12, 13, 14], [15, 16, 17, 18, 19]]
    del refs


def test_the_store_gets_its_memory_back() -> None:
    from aktis.util import debug

    before = debug.store_stats()["used_bytes"]
    array = aktis.get(aktis.put(numpy.arange(LARGE)))
    assert debug.store_stats()["used_bytes"] > before
    del array
    wait_until(lambda: debug.store_stats()["used_bytes"] <= before)


# --- pyarrow ----------------------------------------------------------------------------------


def addresses(table: Any) -> list[int]:
    chunks = [chunk for column in table.itercolumns() for chunk in getattr(column, "chunks", [column])]
    return [buffer.address for chunk in chunks for buffer in chunk.buffers() if buffer is not None]


@pytest.fixture
def arrow() -> Any:
    return pytest.importorskip("pyarrow")


def large_table(arrow: Any) -> Any:
    names = [f"name {number % 100}" for number in range(LARGE)]
    columns = {
        "number": list(range(LARGE)),
        "name": names,
        "some": [None if number % 3 else number / 2 for number in range(LARGE)],
        "lists": [[number] * (number % 3) for number in range(LARGE)],
        "chosen": arrow.array(names).dictionary_encode(),
    }
    return arrow.table(columns)


def test_tables_are_not_copied(arrow: Any) -> None:
    table = large_table(arrow)
    for value in (table, table.to_batches()[0]):
        assert all(found.equals(value) and found.schema == value.schema for found in ways(value))
        ref = aktis.put(value)
        first, second = aktis.get(ref), aktis.get(ref)
        assert addresses(first) == addresses(second)
        assert not set(addresses(first)) & set(addresses(value))


def test_columns_and_chunks_come_back(arrow: Any) -> None:
    table = arrow.concat_tables([large_table(arrow), large_table(arrow).slice(5)])
    for value in (table, table["number"], table["name"].chunk(1), table.schema, table["some"].type):
        assert all(found.equals(value) for found in ways(value))
    assert all(found["name"].num_chunks == 2 for found in ways(table))
    for empty in (table.slice(0, 0), arrow.table({})):
        assert all(found.equals(empty) for found in ways(empty))


def test_a_part_of_a_table_takes_only_itself_along(arrow: Any) -> None:
    from aktis._serialization import dumps

    table = large_table(arrow)
    for value in (table.slice(100, 200), table.to_batches()[0].slice(100, 200)):
        data, buffers = dumps(value)
        assert len(data) + sum(buffer.raw().nbytes for buffer in buffers) < 50_000
        assert all(type(found) is type(value) and found.equals(value) for found in ways(value))
    large = table.slice(1)
    ref = aktis.put(large)
    assert addresses(aktis.get(ref)) == addresses(aktis.get(ref))


def test_an_array_of_arrow_is_read_by_numpy_in_place(arrow: Any) -> None:
    ref = aktis.put(large_table(arrow)["number"].chunk(0))
    first, second = (aktis.get(ref).to_numpy() for _ in range(2))
    assert first.ctypes.data == second.ctypes.data
    assert first.tolist() == list(range(LARGE))


# --- pandas -----------------------------------------------------------------------------------


def test_frames_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": numbers, "b": numbers * 2, "at": pandas.Timestamp("2020"), "name": "x"})
    for found in ways(frame):
        pandas.testing.assert_frame_equal(found, frame)
    ref = aktis.put(pandas.Series(numbers))
    first, second = (aktis.get(ref).to_numpy() for _ in range(2))
    assert first.ctypes.data == second.ctypes.data


# --- torch ------------------------------------------------------------------------------------


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def tensors(torch: Any) -> dict[str, Any]:
    large = torch.arange(float(LARGE * 8))
    return {
        "plain": large,
        "several axes": large.reshape(20, 40, -1),
        "transposed": large.reshape(20, 40, -1).permute(2, 0, 1),
        "images": torch.rand(8, 3, 64, 64).to(memory_format=torch.channels_last),
        "with gaps": large[::3],
        "one value everywhere": torch.ones(1).expand(1000),
        "a part of much": large[5:10],
        "no items": torch.empty(0, 7),
        "no axes": torch.tensor(7.5),
        "small": torch.arange(5, dtype=torch.int16),
        "bfloat": large.to(torch.bfloat16),
        "half": large.to(torch.float16),
        "bits": large > 100,
        "complex": torch.complex(large, large),
        "conjugate": torch.complex(large, large).conj(),
        "negative": torch.complex(large, large).conj().imag,
        "with a gradient": torch.ones(LARGE, requires_grad=True),
        "sparse": torch.eye(100).to_sparse(),
        "a parameter": torch.nn.Parameter(torch.rand(LARGE)),
    }


def test_tensors_come_back(torch: Any) -> None:
    for name, tensor in tensors(torch).items():
        for found in ways(tensor):
            assert type(found) is type(tensor), name
            assert (found.dtype, found.shape, found.layout) == (tensor.dtype, tensor.shape, tensor.layout), (
                name
            )
            assert found.requires_grad == tensor.requires_grad, name
            assert torch.equal(found.detach().to_dense(), tensor.detach().to_dense()), name
    image = tensors(torch)["images"]
    assert all(found.is_contiguous(memory_format=torch.channels_last) for found in ways(image))


@pytest.mark.filterwarnings("error")
def test_tensors_are_not_copied_until_they_are_written_to(torch: Any) -> None:
    tensor = torch.arange(1_000_000)
    ref = aktis.put(tensor)
    before = private_kilobytes()
    many = [aktis.get(ref) for _ in range(20)]
    assert all(torch.equal(found, tensor) for found in many)
    assert private_kilobytes() - before < 30_000, "20 copies would take 160 MB"
    first, second = many[:2]
    first += 1
    assert torch.equal(first, tensor + 1)
    assert torch.equal(second, tensor) and torch.equal(aktis.get(ref), tensor), "nobody else sees it"


def test_a_module_can_be_trained_where_it_arrives(torch: Any) -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(1000, 500), torch.nn.BatchNorm1d(500), torch.nn.Linear(500, 1)
    )

    @aktis.remote
    def train(model: Any) -> Any:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (model(torch.rand(4, 1000)) ** 2).sum().backward()
            optimizer.step()
        return model, optimizer

    ref = aktis.put(model)
    trained, optimizer = aktis.get(train.remote(ref))
    assert not torch.equal(trained[0].weight, model[0].weight)
    assert torch.equal(aktis.get(ref)[0].weight, model[0].weight), "the stored one is as it was"
    assert torch.equal(aktis.get(ref)[1].running_mean, model[1].running_mean)
    assert optimizer.param_groups[0]["params"][0] is trained[0].weight
    for name, value in aktis.get(echo.remote(trained.state_dict())).items():
        assert torch.equal(value, trained.state_dict()[name])


def private_kilobytes() -> int:
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        fields = dict(line.split(":") for line in file.read().splitlines()[1:])
    return int(fields["Private_Dirty"].split()[0])


# --- values of the standard library -----------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        decimal.Decimal("NaN"),
        fractions.Fraction(1, 3),
        uuid.UUID(int=7),
        datetime.datetime(2020, 2, 29, tzinfo=datetime.timezone(datetime.timedelta(hours=-3))),
        collections.OrderedDict(b=1, a=2),
        collections.Counter("abca"),
        collections.defaultdict(list, {"a": [1]}),
        collections.deque([1, 2], maxlen=3),
        range(3, 10, 2),
        slice(1, None, 2),
        Ellipsis,
        NotImplemented,
        memoryview(b"abc").tobytes(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_of_the_standard_library(value: Any) -> None:
    for found in ways(value):
        assert type(found) is type(value)
        assert repr(found) == repr(value)


def test_copies_of_a_reference_leak_nothing(shared_session: Any) -> None:
    import copy

    from aktis.util import debug

    reference = aktis.put(b"x")
    name = reference.hex()
    copies = [copy.copy(reference), copy.deepcopy(reference)]
    assert all(each == reference for each in copies)
    del reference, copies
    assert name not in debug.reference_counts()


def test_a_reference_is_made_of_an_id(shared_session: Any) -> None:
    reference = aktis.put(b"x" * (1 << 20))
    again = aktis.ObjectRef(reference.binary())
    assert (again, again.hex(), isinstance(again, aktis.ObjectID)) == (reference, reference.hex(), True)
    assert aktis.get(again) == b"x" * (1 << 20)
