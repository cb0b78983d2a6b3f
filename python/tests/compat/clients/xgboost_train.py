"""xgboost_ray: trees that are trained and asked by two actors."""

import numpy
import ray
from xgboost_ray import RayDMatrix, RayParams, predict, train

ray.init(num_cpus=2)
random = numpy.random.default_rng(0)
features = random.normal(size=(400, 5))
labels = (features[:, 0] + features[:, 1] > 0).astype(int)
actors = RayParams(num_actors=2, cpus_per_actor=1)
outcome: dict[str, dict[str, list[float]]] = {}
booster = train(
    {"objective": "binary:logistic", "eval_metric": ["error"], "max_depth": 3},
    RayDMatrix(features, labels),
    num_boost_round=10,
    evals=[(RayDMatrix(features, labels), "train")],
    evals_result=outcome,
    ray_params=actors,
    verbose_eval=False,
)
given = predict(booster, RayDMatrix(features), ray_params=actors)
assert len(outcome["train"]["error"]) == 10
assert numpy.mean((given > 0.5) == labels) > 0.9
print("result: error", [round(float(error), 6) for error in outcome["train"]["error"]])
print("result: mean", round(float(given.mean()), 4))
