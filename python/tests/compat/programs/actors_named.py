"""Names of actors, and namespaces."""

import ray
from outcomes import show, start, wait_until

start(namespace="here")


@ray.remote(num_cpus=0)
class A:
    def ok(self):
        return 1


def gone(name):
    try:
        ray.get_actor(name)
    except ValueError:
        return True
    return False


show("nobody", lambda: ray.get_actor("nobody"), "Failed to look up actor with name")
show("empty name", lambda: ray.get_actor(""))
keep = A.options(name="a").remote()
show("found", lambda: ray.get(ray.get_actor("a").ok.remote()))
show("taken", lambda: A.options(name="a").remote(), "is already taken")
show("get_if_exists", lambda: A.options(name="a", get_if_exists=True).remote() == keep)
show("other namespace", lambda: ray.get_actor("a", namespace="there"))
other = A.options(name="a", namespace="there").remote()
show("the same name elsewhere", lambda: ray.get_actor("a", namespace="there") == other)
show("names", lambda: sorted(ray.util.list_named_actors()))
show("all names", lambda: sorted(map(str, ray.util.list_named_actors(all_namespaces=True))))
ray.kill(keep)
show("free after kill", lambda: wait_until(lambda: gone("a")))
show("taken again", lambda: ray.get(A.options(name="a").remote().ok.remote()))
detached = A.options(name="d", lifetime="detached").remote()
ray.get(detached.ok.remote())
del detached
show("detached without a handle", lambda: ray.get(ray.get_actor("d").ok.remote()))
