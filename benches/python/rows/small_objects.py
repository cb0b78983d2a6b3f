"""Put and get of a small value."""

from typing import Any

from clock import Clock
from figure import Demand, Shape
from row import Row, both


def put_and_get(api: Any, clock: Clock) -> dict[str, float]:
    kept = api.put(7)
    assert api.get(kept) == 7

    def put() -> None:
        api.put(7)

    def get() -> None:
        assert api.get(kept) == 7

    return {"put-small": clock.rate(put, share=0.5), "get-small": clock.rate(get, share=0.5)}


def put_and_get_dask(client: Any, clock: Clock) -> dict[str, float]:
    kept = client.scatter(7, hash=False)
    assert kept.result() == 7

    def put() -> None:
        client.scatter(7, hash=False)

    def get() -> None:
        assert kept.result() == 7

    return {"put-small": clock.rate(put, share=0.5), "get-small": clock.rate(get, share=0.5)}


ROWS = [
    Row(
        "small-objects",
        (
            Shape("put-small", "put of a small value", "1/s", (Demand("ray", 100),)),
            Shape("get-small", "get of a small value", "1/s", (Demand("ray", 20),)),
        ),
        {**both(put_and_get), "dask": put_and_get_dask},
    )
]
