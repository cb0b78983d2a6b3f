"""Training of PyTorch models over `torch.distributed`: Gloo on CPUs and NCCL on GPUs.

    def train_loop(config):
        model = aktis.train.torch.prepare_model(Net())
        loader = aktis.train.torch.prepare_data_loader(DataLoader(data, batch_size=32, shuffle=True))
        ...

    TorchTrainer(train_loop, scaling_config=ScalingConfig(num_workers=2)).fit()

torch is imported in the workers only, so a driver needs none.
"""

from aktis.train.torch.config import TorchConfig
from aktis.train.torch.prepare import (
    enable_reproducibility,
    get_device,
    get_devices,
    prepare_data_loader,
    prepare_model,
    prepare_optimizer,
)
from aktis.train.torch.trainer import TorchTrainer

__all__ = [
    "TorchConfig",
    "TorchTrainer",
    "enable_reproducibility",
    "get_device",
    "get_devices",
    "prepare_data_loader",
    "prepare_model",
    "prepare_optimizer",
]
