"""Retries of exceptions and deaths, and how they are counted."""

import os
import sys
import tempfile

import ray
from outcomes import show, start

start()


def tries(folder):
    number = len(os.listdir(folder))
    open(os.path.join(folder, str(number)), "w").close()
    return number


@ray.remote(num_cpus=0)
def flaky(folder, ways):
    number = tries(folder)
    way = ways[number] if number < len(ways) else ""
    if way == "raise":
        raise ValueError("again")
    if way == "die":
        os._exit(1)
    return number


@ray.remote(num_cpus=0)
class A:
    def flaky(self, folder, ways):
        number = tries(folder)
        way = ways[number] if number < len(ways) else ""
        if way == "raise":
            raise ValueError("again")
        if way == "exit":
            sys.exit(1)
        return number


@ray.remote(num_cpus=0, max_retries=2, retry_exceptions=True)
def generator(folder):
    number = tries(folder)
    yield number
    if number < 1:
        raise ValueError("again")
    yield "end"


def counted(situation, run):
    folder = tempfile.mkdtemp()
    show(situation, lambda: run(folder))
    show(f"{situation}: tries", lambda: len(os.listdir(folder)))


def task(ways, **options):
    return lambda folder: ray.get(flaky.options(**options).remote(folder, ways))


def call(ways, *, restarts, **options):
    def run(folder):
        actor = A.options(max_restarts=restarts).remote()
        return ray.get(actor.flaky.options(**options).remote(folder, ways))

    return run


counted("no retry of exceptions", task(["raise"]))
counted("retry of all exceptions", task(["raise"] * 2, retry_exceptions=True))
counted("retry of some exceptions", task(["raise"] * 2, retry_exceptions=[ValueError]))
counted("not of others", task(["raise"], retry_exceptions=[KeyError]))
counted("budget is used up", task(["raise"] * 3, retry_exceptions=True, max_retries=1))
counted("deaths", task(["die"] * 2, max_retries=2))
counted("too many deaths", task(["die"] * 3, max_retries=1))
counted("call is not retried", call(["raise"], restarts=0))
counted("call is retried", call(["raise"], restarts=0, max_task_retries=1, retry_exceptions=True))
counted("exits", call(["exit", "exit"], restarts=2, max_task_retries=2))
counted("one budget", call(["raise", "exit", "exit"], restarts=1, max_task_retries=4, retry_exceptions=True))
counted("generator", lambda folder: [ray.get(ref) for ref in generator.remote(folder)])
