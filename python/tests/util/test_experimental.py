"""Aliases under `aktis.experimental`."""

from typing import Any

import aktis
from aktis.experimental import get_local_object_locations, get_object_locations, internal_kv, tqdm_ray
from aktis.util import tqdm as stable


def test_tqdm_is_the_stable_one() -> None:
    assert tqdm_ray.tqdm is stable.tqdm
    assert tqdm_ray.safe_print is stable.safe_print


def test_internal_kv(session: Any) -> None:
    assert internal_kv._internal_kv_initialized()
    assert internal_kv._internal_kv_put("k", "v") is False  # It was not there.
    assert internal_kv._internal_kv_put("k", "w", overwrite=False) is True
    assert internal_kv._internal_kv_get(b"k") == b"v"
    assert internal_kv._internal_kv_exists("k")
    assert internal_kv._internal_kv_list("") == [b"k"]
    assert internal_kv._internal_kv_del("k") == 1
    assert internal_kv._internal_kv_get("k") is None


def test_locations(session: Any) -> None:
    large, small = aktis.put(bytes(1 << 20)), aktis.put(1)
    found = get_object_locations([large, small])
    assert found[large]["node_ids"] == [aktis.get_runtime_context().get_node_id()]
    assert found[large]["object_size"] >= 1 << 20
    assert found[large]["did_spill"] is False
    assert set(found) == {large, small}
    assert get_local_object_locations([large]) == {large: found[large]}


def test_small_values_are_where_they_are_asked_for(shared_session: Any) -> None:
    reference = aktis.put(b"small")
    for found in (get_object_locations([reference]), get_local_object_locations([reference])):
        assert found[reference]["node_ids"] == [aktis.get_runtime_context().get_node_id()]
        assert found[reference]["object_size"] > len(b"small")
