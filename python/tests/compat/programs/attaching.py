"""Several drivers: attaching by address, and what they see of each other."""

import subprocess
import sys

import ray
from outcomes import show, wait_until

found = ray.init(num_cpus=2, namespace="shared", include_dashboard=False, log_to_driver=False)
ADDRESS = found.address_info["address"]
HOOK = "import aktis.compat\n" if "aktis" in sys.modules else ""

SECOND = """
import sys, ray
ray.init(address=sys.argv[1], namespace="shared", log_to_driver=False)
@ray.remote(num_cpus=0)
class Keeper:
    def get(self):
        return 5
actor = Keeper.options(name="made", lifetime="detached").remote()
ray.get(actor.get.remote())
Keeper.options(name="mine").remote().get.remote()
print(ray.get(ray.get_actor("first").add.remote(4)))
"""


def second():
    done = subprocess.run(
        [sys.executable, "-c", HOOK + SECOND, ADDRESS], capture_output=True, text=True, timeout=60
    )
    return [done.stdout.split()[-1:], done.returncode == 0]


@ray.remote(num_cpus=0)
class First:
    def __init__(self):
        self.sum = 0

    def add(self, number):
        self.sum += number
        return self.sum


def gone(name):
    try:
        ray.get_actor(name)
    except ValueError:
        return True
    return False


first = First.options(name="first").remote()
ray.get(first.add.remote(1))
show("its address", lambda: [ADDRESS.count(":"), ADDRESS.rpartition(":")[2].isdigit()])
show("the context", lambda: found["address"] == ADDRESS)
show("a second driver", second)
show("what the second added", lambda: ray.get(first.add.remote(0)))
show("the detached actor of the second", lambda: ray.get(ray.get_actor("made").get.remote()))
show("the other actor of the second", lambda: wait_until(lambda: gone("mine")))
