"""Actors and tasks that wait for resources: what their arguments keep, and who goes first."""

import gc
import os
import time

import numpy
import ray
from outcomes import show, start, wait_until

start(resources={"unit": 1}, object_store_memory=100_000_000)


def free():
    return ray.available_resources().get("object_store_memory", 0)


@ray.remote(num_cpus=0, resources={"absent": 1})
class Waits:
    def __init__(self, container):
        self.container = container


@ray.remote(num_cpus=0, resources={"unit": 1})
def unit(value=1):
    time.sleep(0.5)
    return value


@ray.remote(num_cpus=0, resources={"unit": 1})
class Unit:
    def __init__(self, value):
        self.value = value

    def get(self):
        return self.value


def killed_before_it_was_placed():
    before = free()
    actor = Waits.remote([ray.put(numpy.ones(20_000_000, dtype=numpy.uint8))])
    gc.collect()
    held = wait_until(lambda: free() < before - 10_000_000, 5)
    ray.kill(actor)
    return [held, wait_until(lambda: free() > before - 10_000_000, 3)]


def dropped_before_it_was_placed():
    before = free()
    actor = Waits.remote([ray.put(numpy.ones(20_000_000, dtype=numpy.uint8))])
    del actor
    gc.collect()
    return wait_until(lambda: free() > before - 10_000_000, 3)


def actor_and_its_argument():
    actor = Unit.remote(unit.remote(7))
    return ray.get(actor.get.remote(), timeout=15)


def task_and_its_argument():
    return ray.get(unit.remote(unit.remote(8)), timeout=15)


@ray.remote
def threads():
    return [os.environ.get("OMP_NUM_THREADS"), os.getpid()]


def omp():
    one = ray.get(threads.remote())
    two = ray.get(threads.options(num_cpus=2).remote())
    return [one[0], two[0]]


def omp_process():
    one = ray.get(threads.remote())
    time.sleep(0.3)
    two = ray.get(threads.options(num_cpus=2).remote())
    return one[1] == two[1]


show("killed before it was placed", killed_before_it_was_placed)
show("dropped before it was placed", dropped_before_it_was_placed)
show("an actor and its argument need one unit", actor_and_its_argument)
show("a task and its argument need one unit", task_and_its_argument)
show("OMP_NUM_THREADS", omp)
show("OMP_NUM_THREADS in one process", omp_process)
