"""pymoo: a genetic algorithm whose evaluations are Ray's tasks."""

import ray
from pymoo.algorithms.soo.nonconvex.ga import GA
from pymoo.core.problem import ElementwiseProblem
from pymoo.optimize import minimize
from pymoo.parallelization.ray import RayParallelization


class Sphere(ElementwiseProblem):
    def __init__(self, **options):
        super().__init__(n_var=3, n_obj=1, xl=-5, xu=5, **options)

    def _evaluate(self, x, out, *args, **kwargs):
        out["F"] = (x**2).sum()


ray.init(num_cpus=2)
found = minimize(Sphere(elementwise_runner=RayParallelization()), GA(pop_size=20), ("n_gen", 15), seed=1)
again = minimize(Sphere(), GA(pop_size=20), ("n_gen", 15), seed=1)
assert (found.X == again.X).all() and found.F[0] < 1
print("result:", round(float(found.F[0]), 9))
