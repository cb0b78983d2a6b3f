"""Tasks that raise, exit or are given wrong arguments."""

import os
import sys

import ray
from outcomes import show, start

start()


@ray.remote(max_retries=0)
def fail(way):
    if way == "raise":
        raise ValueError("because")
    if way == "key":
        return {}["missing"]
    if way == "exit":
        sys.exit(3)
    if way == "die":
        os._exit(4)
    if way == "custom":

        class Custom(Exception):
            def __init__(self, number):
                super().__init__(f"number {number}")
                self.number = number

        raise Custom(7)
    return way


@ray.remote
def pass_on(value):
    return value


@ray.remote(num_returns=2)
def three():
    return 1, 2, 3


def number_of():
    try:
        ray.get(fail.remote("custom"))
    except ray.exceptions.RayTaskError as error:
        return [error.number, type(error.cause).__name__, "number 7" in str(error)]


def class_of():
    try:
        ray.get(fail.remote("raise"))
    except ValueError as error:
        return [type(error).__name__, isinstance(error, ray.exceptions.RayTaskError)]


show("raises", lambda: ray.get(fail.remote("raise")), "because", "ValueError")
show("raises a KeyError", lambda: ray.get(fail.remote("key")), "missing")
show("exits", lambda: ray.get(fail.remote("exit")))
show("dies", lambda: ray.get(fail.remote("die")))
show("fields of an exception", number_of)
show("class of an exception", class_of)
show("an input failed", lambda: ray.get(pass_on.remote(fail.remote("raise"))), "because")
show("too many returns", lambda: ray.get(three.remote()))
show("missing argument", lambda: fail.remote())
show("unknown argument", lambda: fail.remote("x", other=1))
show("called directly", lambda: fail("x"))
show("get of a list with a failure", lambda: ray.get([pass_on.remote(1), fail.remote("raise")]), "because")
show("get of nothing", lambda: ray.get([]))
show("get of a value", lambda: ray.get(3))
show("put of a reference", lambda: ray.put(ray.put(1)))
