"""TorchTrainer on CPUs: equal to one process, exact after kill -9, errors that name the worker."""

import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from aktis import train
from aktis.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
from aktis.train.torch import TorchConfig, TorchTrainer, get_device, prepare_data_loader, prepare_model

torch = pytest.importorskip("torch")

RECOVERY_SECONDS = 20.0
"""Four times the promise, for a busy machine; `benches/learning/train_recovery.py` measures."""


def net() -> Any:
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def data() -> Any:
    generator = torch.Generator().manual_seed(1)
    xs = torch.randn(64, 6, generator=generator)
    return torch.utils.data.TensorDataset(xs, xs.prod(dim=1, keepdim=True))


def loop(config: dict[str, Any]) -> None:
    """Trains with state in checkpoints; kills worker 1 once if `kill` names a file that is not there."""
    rank = train.get_context().get_world_rank()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    first = 0
    if (checkpoint := train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state.pt"))
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
    model = prepare_model(model)
    loader = prepare_data_loader(torch.utils.data.DataLoader(data(), batch_size=8, shuffle=True))
    for epoch in range(first, 4):
        loader.sampler.set_epoch(epoch)
        total = 0.0
        for number, (xs, ys) in enumerate(loader):
            loss = torch.nn.functional.mse_loss(model(xs), ys)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            if (
                config.get("kill")
                and rank == 1
                and (epoch, number) == (2, 1)
                and not os.path.exists(config["kill"])
            ):
                Path(config["kill"]).write_text(str(time.time()))
                os.kill(os.getpid(), signal.SIGKILL)
        with tempfile.TemporaryDirectory() as folder:
            if rank == 0:
                state = {
                    "model": model.module.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "epoch": epoch,
                }
                torch.save(state, os.path.join(folder, "state.pt"))
            checkpoint = Checkpoint.from_directory(folder) if rank == 0 else None
            train.report({"loss": total, "time": time.time()}, checkpoint=checkpoint)


def trainer(
    function: Any, tmp_path: Path, config: dict[str, Any] | None = None, **options: Any
) -> TorchTrainer:
    return TorchTrainer(
        function,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="run", storage_path=tmp_path, verbose=0, **options),
    )


def losses(result: Any) -> list[float]:
    return [row["loss"] for row in result.metrics_history]


def test_a_killed_worker_is_back_soon_and_changes_nothing(torch_session: None, tmp_path: Path) -> None:
    undisturbed = trainer(loop, tmp_path / "a").fit()
    marker = tmp_path / "killed"
    failures = FailureConfig(max_failures=1)
    disturbed = trainer(loop, tmp_path / "b", {"kill": str(marker)}, failure_config=failures).fit()
    assert disturbed.failures == 1
    assert losses(disturbed) == losses(undisturbed) and len(losses(disturbed)) == 4
    back = disturbed.metrics_history[2]["time"] - float(marker.read_text())
    assert back < RECOVERY_SECONDS, f"{back:.1f} s"


def test_two_workers_do_what_one_process_does(torch_session: None, tmp_path: Path) -> None:
    def average(config: dict[str, Any]) -> None:
        context = train.get_context()
        model = prepare_model(net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        xs, ys = data()[context.get_world_rank() :: context.get_world_size()]
        for _ in range(5):
            loss = torch.nn.functional.mse_loss(model(xs), ys)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        train.report(
            {
                "weights": [value.tolist() for value in model.parameters()],
                "threads": torch.get_num_threads(),
                "backend": torch.distributed.get_backend(),
                "environment": [os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")],
                "device": str(get_device()),
            }
        )

    found = trainer(average, tmp_path).fit().metrics
    assert found is not None
    assert found["backend"] == "gloo" and found["environment"] == ["0", "2", "0"] and found["device"] == "cpu"
    assert found["threads"] == 1, "as many as the worker has CPUs"
    # By hand: `torch.optim` would take seconds to import.
    model = net()
    xs, ys = data()[:]
    for _ in range(5):
        model.zero_grad()
        torch.nn.functional.mse_loss(model(xs), ys).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
    for expected, weights in zip(model.parameters(), found["weights"]):
        torch.testing.assert_close(torch.tensor(weights), expected.detach(), rtol=1e-5, atol=1e-6)


def test_errors_of_workers_that_wait_for_each_other_end(torch_session: None, tmp_path: Path) -> None:
    def uneven() -> None:
        if train.get_context().get_world_rank() == 1:
            raise KeyError("no such layer")
        torch.distributed.all_reduce(torch.zeros(1))  # waits for the other

    with pytest.raises(TrainingFailedError, match=r"worker 1 on node .* failed: KeyError: 'no such layer'"):
        trainer(uneven, tmp_path).fit()


def test_a_worker_that_hangs_ends_the_run_after_its_timeout(torch_session: None, tmp_path: Path) -> None:
    def stuck() -> None:
        if train.get_context().get_world_rank() == 1:
            threading.Event().wait()
        torch.distributed.all_reduce(torch.zeros(1))

    wanted = TorchTrainer(
        stuck,
        torch_config=TorchConfig(timeout_s=1.0),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=tmp_path, verbose=0),
    )
    with pytest.raises(TrainingFailedError, match=r"worker 0 on node .* failed: (.|\n)*[Tt]imed? ?out"):
        wanted.fit()


def test_nccl_without_a_gpu_is_refused(torch_session: None, tmp_path: Path) -> None:
    wanted = TorchTrainer(
        lambda: None,
        torch_config=TorchConfig(backend="nccl"),
        run_config=RunConfig(storage_path=tmp_path, verbose=0),
    )
    with pytest.raises(TrainingFailedError, match="the backend nccl needs a GPU"):
        wanted.fit()


def test_loaders_that_cannot_be_shared_out_are_refused(torch_session: None, tmp_path: Path) -> None:
    def own_sampler() -> None:
        sampler = torch.utils.data.WeightedRandomSampler([1.0] * 64, 8)
        prepare_data_loader(torch.utils.data.DataLoader(data(), sampler=sampler))

    with pytest.raises(TrainingFailedError, match="a sampler of its own, WeightedRandomSampler"):
        trainer(own_sampler, tmp_path).fit()


def test_tensors_of_shards_and_a_parameter_server(torch_session: None, tmp_path: Path) -> None:
    from aktis.train import DatasetShard, ParameterServer
    from aktis.train.parameter_server import SGD

    shard = DatasetShard({"x": list(range(10))}, rank=1, world_size=2)
    batches = [batch["x"].tolist() for batch in shard.iter_torch_batches(batch_size=3)]
    assert batches == [[5, 6, 7], [8, 9]]
    model = torch.nn.Linear(3, 1)
    server = ParameterServer(model, optimizer=SGD(0.5), num_workers=1)
    before = model.weight.detach().clone()
    model(torch.ones(1, 3)).sum().backward()
    server.push_pull_into(model)
    torch.testing.assert_close(model.weight.detach(), before - 0.5)
    other = torch.nn.Linear(3, 1)
    server.pull_into(other)
    torch.testing.assert_close(other.bias, model.bias)
