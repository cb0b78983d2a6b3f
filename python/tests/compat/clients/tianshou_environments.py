"""Tianshou: environments in Ray's actors."""

import gymnasium
import numpy
import ray
from tianshou.env import RayVectorEnv

ray.init(num_cpus=2)
environments = RayVectorEnv([lambda: gymnasium.make("CartPole-v1") for _ in range(3)])
environments.seed([1, 2, 3])
environments.reset()
total = numpy.zeros(3)
for turn in range(5):
    observations, rewards, *_ = environments.step(numpy.full(3, turn % 2))
    total += rewards
assert environments.get_env_attr("spec")[0].id == "CartPole-v1"
environments.close()
assert total.tolist() == [5, 5, 5]
print("result: observations", numpy.round(observations, 5).tolist())
