"""Dask's bags and delayed functions on the scheduler for Ray, with persist."""

import dask
import dask.bag
import ray
from ray.util.dask import disable_dask_on_ray, enable_dask_on_ray, ray_dask_get

ray.init(num_cpus=2)


@dask.delayed
def square(number):
    return number * number


total = dask.delayed(sum)([square(number) for number in range(20)])
assert total.compute(scheduler=ray_dask_get) == sum(number * number for number in range(20))
with enable_dask_on_ray():
    bag = dask.bag.from_sequence(range(100), npartitions=5)
    assert bag.map(lambda number: number + 1).filter(lambda number: number % 2).sum().compute() == 2500
    (persisted,) = dask.persist(bag.map(str))
    assert persisted.count().compute() == 100
disable_dask_on_ray()
print("well")
