"""Annotations mark and change nothing else; accelerators are plain names."""

import pytest

from aktis.util import accelerators
from aktis.util.annotations import AnnotationType, Deprecated, DeveloperAPI, PublicAPI, is_annotated


def test_bare_and_called() -> None:
    @PublicAPI
    def first() -> int:
        return 1

    @PublicAPI(stability="beta")
    def second() -> int:
        """Gives two."""
        return 2

    @DeveloperAPI
    class Third: ...

    @Deprecated(message="use `second`")
    def fourth() -> int:
        return 4

    assert (first(), second(), fourth()) == (1, 2, 4)
    assert first._annotated_type is AnnotationType.PUBLIC_API  # type: ignore[attr-defined]
    assert Third._annotated_type is AnnotationType.DEVELOPER_API  # type: ignore[attr-defined]
    assert second.__doc__ is not None
    assert second.__doc__.startswith("Gives two.")
    assert "beta" in second.__doc__
    assert "use `second`" in (fourth.__doc__ or "")


def test_a_subclass_is_not_annotated() -> None:
    @PublicAPI
    class Base: ...

    class Derived(Base): ...

    assert is_annotated(Base)
    assert not is_annotated(Derived)
    assert not is_annotated(len)


def test_what_cannot_carry_a_mark_still_works() -> None:
    assert PublicAPI(len)([1]) == 1


def test_an_unknown_stability() -> None:
    with pytest.raises(ValueError, match="stability"):
        PublicAPI(stability="rocky")


def test_accelerators_are_names() -> None:
    names = {name: value for name, value in vars(accelerators).items() if name.isupper()}
    assert names["NVIDIA_A100"] == "A100"
    assert names["NVIDIA_H200"] == "H200"
    assert all(isinstance(value, str) for value in names.values())
    # Ray has two names for one.
    assert names.pop("NVIDIA_TESLA_A100") == "A100"
    assert len(set(names.values())) == len(names)
