"""Training on several nodes: a node that dies, and storage that a worker does not see."""

import json
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import aktis
from aktis import train
from aktis.cluster_utils import Cluster
from aktis.train import Checkpoint, DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig
from aktis.train.storage import RunFolder, Staging
from aktis.train.torch import TorchTrainer


def loop(config: dict[str, Any]) -> None:
    context = train.get_context()
    checkpoint = train.get_checkpoint()
    first = 0
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            first = json.loads((Path(folder) / "state.json").read_text())["epoch"] + 1
    for epoch in range(first, 4):
        if epoch == 2 and context.get_world_size() == 2:
            # Until its node is gone, or the run is started again with the other.
            import threading

            threading.Event().wait()
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "state.json").write_text(json.dumps({"epoch": epoch}))
            metrics = {"epoch": epoch, "size": context.get_world_size(), "node": context.get_node_rank()}
            train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def test_a_run_goes_on_with_fewer_workers_after_the_death_of_a_node(no_session: None, tmp_path: Path) -> None:
    cluster = Cluster(initialize_head=True, connect=True, head_node_args={"num_cpus": 1})
    try:
        node = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()

        def on_metrics(metrics: dict[str, Any]) -> None:
            if metrics["epoch"] == 1 and metrics["size"] == 2:
                cluster.remove_node(node, allow_graceful=False)

        trainer = DataParallelTrainer(
            loop,
            scaling_config=ScalingConfig(num_workers=(1, 2), placement_strategy="SPREAD"),
            run_config=RunConfig(
                name="run",
                storage_path=tmp_path,
                verbose=0,
                failure_config=FailureConfig(max_failures=1),
                callbacks=[on_metrics],
            ),
        )
        result = trainer.fit()
        assert result.failures == 1
        assert [row["epoch"] for row in result.metrics_history] == [0, 1, 2, 3]
        assert [row["size"] for row in result.metrics_history[2:]] == [1, 1]
    finally:
        cluster.shutdown()


def sums(config: dict[str, Any]) -> None:
    """Sums over the workers with Gloo; the one on the node `dies` holds the other up in its third epoch."""
    import threading

    import torch

    context = train.get_context()
    checkpoint = train.get_checkpoint()
    first = 0
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            first = json.loads((Path(folder) / "state.json").read_text())["epoch"] + 1
    for epoch in range(first, 4):
        if epoch == 2 and aktis.get_runtime_context().get_node_id() == config["dies"]:
            threading.Event().wait()
        total = torch.ones(1)
        torch.distributed.all_reduce(total)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "state.json").write_text(json.dumps({"epoch": epoch}))
            metrics = {"epoch": epoch, "total": total.item(), "node": context.get_node_rank()}
            train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def test_gloo_works_over_two_nodes_and_ends_with_one(no_session: None, tmp_path: Path) -> None:
    with Cluster(initialize_head=True, connect=True, head_node_args={"num_cpus": 1}) as cluster:
        node = cluster.add_node(num_cpus=1)

        def on_metrics(metrics: dict[str, Any]) -> None:
            if metrics["epoch"] == 1:
                assert node.process is not None
                os.kill(node.process.pid, signal.SIGKILL)

        trainer = TorchTrainer(
            sums,
            train_loop_config={"dies": node.node_id},
            scaling_config=ScalingConfig(num_workers=(1, 2), placement_strategy="SPREAD"),
            run_config=RunConfig(
                name="run",
                storage_path=tmp_path,
                verbose=0,
                failure_config=FailureConfig(max_failures=1),
                callbacks=[on_metrics],
            ),
        )
        result = trainer.fit()
        assert result.failures == 1
        assert [(row["epoch"], row["total"]) for row in result.metrics_history] == [
            *[(0, 2.0), (1, 2.0), (2, 1.0), (3, 1.0)]
        ]


def test_files_of_a_worker_that_does_not_see_the_storage_travel(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path / "run"))
    folder.open()
    assert folder.staging.is_visible()
    elsewhere = Staging(folder.path, "the token of another machine")
    assert not elsewhere.is_visible()
    (tmp_path / "own" / "deep").mkdir(parents=True)
    (tmp_path / "own" / "deep" / "weights").write_bytes(b"\0\1\2")
    part = elsewhere.stage(Checkpoint(tmp_path / "own"), rank=1, name=None)
    assert part.folder is None and part.files == {"deep/weights": b"\0\1\2"}
    checkpoint = folder.commit([part], {"loss": 1.0}, reports=1)
    with checkpoint.as_directory() as path:
        assert (Path(path) / "deep" / "weights").read_bytes() == b"\0\1\2"
