"""TorchRL: collectors in Ray's actors, whose policies get new weights."""

import ray
import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.collectors.distributed import RayCollector
from torchrl.envs import GymEnv

FRAMES = 200

if __name__ == "__main__":
    ray.init(num_cpus=2)
    layer = nn.Linear(3, 1)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    policy = TensorDictModule(layer, in_keys=["observation"], out_keys=["action"])
    collector = RayCollector(
        [lambda: GymEnv("Pendulum-v1")] * 2,
        policy,
        collector_class=Collector,
        frames_per_batch=FRAMES,
        total_frames=3 * FRAMES,
        remote_configs={"num_cpus": 1, "num_gpus": 0},
        sync=True,
    )
    actions = []
    for batch in collector:
        assert batch.numel() == FRAMES
        actions.append(round(float(batch["action"].mean()), 3))
        with torch.no_grad():
            layer.bias += 0.5
        collector.update_policy_weights_()
    collector.shutdown()
    assert len(actions) == 3 and actions[0] == 0 and actions[-1] > 0, actions
    print("result: actions", actions)
