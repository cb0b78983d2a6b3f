"""Training runs without torch: ranks, reports, checkpoints, failures, elastic runs, errors."""

import json
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import train
from aktis.train import (
    Checkpoint,
    CheckpointConfig,
    CheckpointError,
    DataParallelTrainer,
    FailureConfig,
    Result,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
)
from support import wait_until


def save(value: dict[str, Any], metrics: dict[str, Any], name: str = "state.json") -> None:
    """Reports metrics with a checkpoint that holds one file."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_text(json.dumps(value))
        train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def load(name: str = "state.json") -> dict[str, Any] | None:
    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        return None
    with checkpoint.as_directory() as folder:
        return dict(json.loads((Path(folder) / name).read_text()))


def run(tmp_path: Path, **options: Any) -> RunConfig:
    return RunConfig(**{"name": "run", "storage_path": tmp_path, "verbose": 0, **options})


def two(**options: Any) -> ScalingConfig:
    return ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}, **options)


def test_metrics_and_merged_checkpoints_come_back(shared_session: Any, tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        context = train.get_context()
        rank = context.get_world_rank()
        shard = train.get_dataset_shard("numbers")
        for epoch in range(config["epochs"]):
            metrics = {"epoch": epoch, "total": sum(shard), "size": context.get_world_size()}
            save({"rank": rank}, metrics, name=f"rank{rank}.json")

    seen: list[dict[str, Any]] = []
    trainer = DataParallelTrainer(
        loop,
        train_loop_config={"epochs": 3},
        scaling_config=two(),
        datasets={"numbers": list(range(11))},
        run_config=run(tmp_path, callbacks=[seen.append]),
    )
    result = trainer.fit()
    # The eleventh number is left out: the parts have the same length.
    assert result.metrics == {"epoch": 2, "total": 0 + 1 + 2 + 3 + 4, "size": 2}
    assert seen == result.metrics_history and [row["epoch"] for row in seen] == [0, 1, 2]
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as folder:
        files = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    assert files == ["rank0.json", "rank1.json"]
    assert len(result.best_checkpoints) == 3 and result.path == str(tmp_path / "run")
    again = Result.from_path(result.path)
    assert again.metrics == result.metrics and again.checkpoint == result.checkpoint
    assert not (tmp_path / "run" / ".staging").exists()


def test_the_best_and_the_latest_checkpoints_are_kept(shared_session: Any, tmp_path: Path) -> None:
    def loop() -> None:
        for epoch, score in enumerate([3.0, 9.0, 1.0, 5.0, 2.0]):
            save({"epoch": epoch}, {"score": score})

    config = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="score")
    result = DataParallelTrainer(loop, run_config=run(tmp_path, checkpoint_config=config)).fit()
    assert [metrics["score"] for _, metrics in result.best_checkpoints] == [9.0, 5.0, 2.0]
    best = result.get_best_checkpoint("score", "max")
    assert best is not None and best.path.endswith("checkpoint_000001")
    folders = sorted(path.name for path in (tmp_path / "run").glob("checkpoint_*"))
    assert folders == ["checkpoint_000001", "checkpoint_000003", "checkpoint_000004"]


def test_a_killed_worker_costs_the_work_since_the_last_checkpoint(
    shared_session: Any, tmp_path: Path
) -> None:
    def loop(config: dict[str, Any]) -> None:
        state = load() or {"epoch": -1, "value": 0}
        for epoch in range(state["epoch"] + 1, 5):
            value = state["value"] = state["value"] * 3 + epoch
            with open(config["log"], "a") as log:
                log.write(f"{train.get_context().get_world_rank()}{epoch} ")
            if (
                epoch == 3
                and train.get_context().get_world_rank() == 1
                and not os.path.exists(config["killed"])
            ):
                # The other worker may not have made the report that completes the checkpoint.
                wait_until(Path(config["checkpoint"]).exists, what="the checkpoint of epoch 2")
                Path(config["killed"]).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if epoch % 2 == 0:
                save({"epoch": epoch, "value": value}, {"epoch": epoch, "value": value})
            else:
                train.report({"epoch": epoch, "value": value})

    config = {"log": str(tmp_path / "log"), "killed": str(tmp_path / "killed")}
    config["checkpoint"] = str(tmp_path / "run" / "checkpoint_000001")
    trainer = DataParallelTrainer(
        loop,
        train_loop_config=config,
        scaling_config=two(),
        run_config=run(tmp_path, failure_config=FailureConfig(max_failures=1)),
    )
    result = trainer.fit()
    values = [0]
    for epoch in range(1, 5):
        values.append(values[-1] * 3 + epoch)
    # As if nothing had happened; and the epochs before the checkpoint were not run again.
    assert [row["value"] for row in result.metrics_history] == values
    assert result.failures == 1
    words = (tmp_path / "log").read_text().split()
    assert words.count("12") == 1 and words.count("13") == 2


def test_the_error_names_the_worker_that_died(shared_session: Any, tmp_path: Path) -> None:
    def loop() -> None:
        if train.get_context().get_world_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        raise ConnectionError("a worker is gone")

    with pytest.raises(TrainingFailedError) as caught:
        DataParallelTrainer(loop, scaling_config=two(), run_config=run(tmp_path)).fit()
    first = str(caught.value).splitlines()[0]
    node = aktis.nodes()[0]["NodeID"][:8] if len(aktis.nodes()) == 1 else ""
    assert first.startswith("worker 1 on node " + node) and "SIGKILL" in first
    assert "hint: FailureConfig" in str(caught.value)


def test_the_error_of_a_function_is_the_cause(shared_session: Any, tmp_path: Path) -> None:
    def loop() -> None:
        save({}, {"loss": 1.0})
        if train.get_context().get_world_rank() == 0:
            raise ValueError("the loss is too high")

    with pytest.raises(
        TrainingFailedError, match=r"worker 0 on node .* failed: ValueError: the loss"
    ) as caught:
        DataParallelTrainer(loop, scaling_config=two(), run_config=run(tmp_path)).fit()
    assert isinstance(caught.value.__cause__, ValueError)
    assert isinstance(caught.value.worker_failures[0], ValueError)
    assert "checkpoint_000000" in str(caught.value)


def test_an_interrupted_run_goes_on(shared_session: Any, tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        state = load() or {"epoch": -1}
        for epoch in range(state["epoch"] + 1, 4):
            if epoch == 2 and not config["whole"]:
                raise RuntimeError("power cut")
            save({"epoch": epoch}, {"epoch": epoch, "from": state["epoch"]})

    with pytest.raises(TrainingFailedError, match="power cut"):
        DataParallelTrainer(loop, train_loop_config={"whole": False}, run_config=run(tmp_path)).fit()
    assert DataParallelTrainer.can_restore(tmp_path / "run")
    trainer = DataParallelTrainer.restore(tmp_path / "run", train_loop_config={"whole": True})
    result = trainer.fit()
    assert [(row["epoch"], row["from"]) for row in result.metrics_history] == [
        (0, -1),
        (1, -1),
        (2, 1),
        (3, 1),
    ]
    # A run that is done is not continued by another of its name.
    fresh = DataParallelTrainer(loop, train_loop_config={"whole": True}, run_config=run(tmp_path)).fit()
    assert [row["from"] for row in fresh.metrics_history] == [-1] * 4
    assert fresh.checkpoint is not None and fresh.checkpoint.path.endswith("checkpoint_000007")


def test_a_truncated_checkpoint_is_passed_over(shared_session: Any, tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        state = load() or {"epoch": -1}
        for epoch in range(state["epoch"] + 1, 3):
            save({"epoch": epoch, "padding": "x" * 100}, {"epoch": epoch, "from": state["epoch"]})
        if config["fail"]:
            raise RuntimeError("at the end")

    with pytest.raises(TrainingFailedError):
        DataParallelTrainer(loop, train_loop_config={"fail": True}, run_config=run(tmp_path)).fit()
    last = tmp_path / "run" / "checkpoint_000002"
    (last / "state.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"state\.json has 1 bytes"), Checkpoint(last).as_directory():
        pass
    with pytest.warns(UserWarning, match="goes on from an earlier checkpoint"):
        trainer = DataParallelTrainer(loop, train_loop_config={"fail": False}, run_config=run(tmp_path))
        result = trainer.fit()
    assert [row["from"] for row in result.metrics_history] == [-1, -1, 1]


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".aktis.json").write_text('{"version": 99}')
    with pytest.raises(CheckpointError, match="version 99"):
        Checkpoint(tmp_path).verify()
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        Checkpoint(tmp_path / "nowhere").to_directory()


def epochs(config: dict[str, Any]) -> None:
    for epoch in range((load() or {"epoch": -1})["epoch"] + 1, config["epochs"]):
        save({"epoch": epoch}, {"epoch": epoch})


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("trainer.pkl", lambda whole: whole[: len(whole) // 2], "the trainer of the run cannot be read from"),
        ("run.json", lambda whole: whole[: len(whole) // 2], r"cannot be read from run\.json"),
        (
            "run.json",
            lambda whole: whole.replace(b'"version": 1', b'"version": 7'),
            "has version 7, .* reads 1",
        ),
    ],
)
def test_a_run_whose_files_are_damaged_is_refused(
    shared_session: Any, tmp_path: Path, name: str, content: Any, text: str
) -> None:
    DataParallelTrainer(epochs, train_loop_config={"epochs": 1}, run_config=run(tmp_path)).fit()
    file = tmp_path / "run" / name
    file.write_bytes(content(file.read_bytes()))
    with pytest.raises(CheckpointError, match=rf"{text}(.|\n)*\nhint: "):
        DataParallelTrainer.restore(tmp_path / "run").fit()
    # The checkpoint itself is whole, and another run starts from it.
    start = Checkpoint(tmp_path / "run" / "checkpoint_000000")
    other = run(tmp_path, name="other")
    trainer = DataParallelTrainer(
        epochs, train_loop_config={"epochs": 3}, run_config=other, resume_from_checkpoint=start
    )
    assert [row["epoch"] for row in trainer.fit().metrics_history] == [1, 2]


def test_a_truncated_checkpoint_to_start_from_is_refused(shared_session: Any, tmp_path: Path) -> None:
    DataParallelTrainer(epochs, train_loop_config={"epochs": 1}, run_config=run(tmp_path)).fit()
    start = Checkpoint(tmp_path / "run" / "checkpoint_000000")
    (Path(start.path) / "state.json").write_text("")
    with pytest.raises(CheckpointError, match=r"state\.json has 0 bytes(.|\n)*\nhint: "):
        DataParallelTrainer(
            epochs,
            train_loop_config={"epochs": 2},
            run_config=run(tmp_path, name="other"),
            resume_from_checkpoint=start,
        ).fit()


def test_a_worker_without_memory_is_named(shared_session: Any, tmp_path: Path) -> None:
    def hungry() -> None:
        if train.get_context().get_world_rank() == 1:
            bytearray(1 << 60)

    with pytest.raises(
        TrainingFailedError,
        match=r"worker 1 on node .* failed: MemoryError(.|\n)*\nhint: use smaller batches",
    ):
        DataParallelTrainer(hungry, scaling_config=two(), run_config=run(tmp_path)).fit()
    result = DataParallelTrainer(epochs, train_loop_config={"epochs": 1}, run_config=run(tmp_path)).fit()
    assert result.metrics == {"epoch": 0}


def test_a_metric_that_is_nan_is_a_warning_that_names_it(shared_session: Any, tmp_path: Path) -> None:
    def diverging() -> None:
        for loss in (1.0, float("nan"), float("nan")):
            train.report({"loss": loss, "rate": 0.1})

    with pytest.warns(UserWarning, match=r"reports NaN for 'loss' since report 2\nhint: ") as caught:
        result = DataParallelTrainer(diverging, run_config=run(tmp_path)).fit()
    assert len(caught) == 1 and len(result.metrics_history) == 3


def test_an_elastic_run_takes_the_workers_it_can_get(shared_session: Any, tmp_path: Path) -> None:
    def loop() -> None:
        train.report({"size": train.get_context().get_world_size()})

    scaling = ScalingConfig(num_workers=(1, 4))
    result = DataParallelTrainer(loop, scaling_config=scaling, run_config=run(tmp_path)).fit()
    assert result.metrics == {"size": 2}


def test_a_run_without_room_fails_and_says_so(shared_session: Any, tmp_path: Path) -> None:
    scaling = ScalingConfig(num_workers=3, placement_timeout_s=0.2)
    with pytest.raises(TrainingFailedError, match=r"3 workers need 1 CPU each .*; the cluster has 2 CPU"):
        DataParallelTrainer(lambda: None, scaling_config=scaling, run_config=run(tmp_path)).fit()


def test_bad_settings_are_refused() -> None:
    bad: list[tuple[Any, type[Exception], str]] = [
        (lambda: ScalingConfig(num_workers=0), ValueError, "at least 1"),
        (lambda: ScalingConfig(num_workers=(3, 2)), ValueError, r"hint: .*\(2, 3\)"),
        (lambda: ScalingConfig(num_workers=1.5), TypeError, "must be an int"),  # type: ignore[arg-type]
        (lambda: ScalingConfig(placement_strategy="HEAP"), ValueError, "use one of PACK"),
        (lambda: FailureConfig(max_failures=-2), ValueError, "-1 means"),
        (lambda: CheckpointConfig(num_to_keep=0), ValueError, "None keeps all"),
        (lambda: CheckpointConfig(checkpoint_score_order="up"), ValueError, '"min" or "max"'),
        (lambda: RunConfig(name="a/b"), ValueError, "name of a folder"),
        (lambda: RunConfig(storage_path="s3://bucket"), ValueError, "only folders"),
        (lambda: DataParallelTrainer(3), TypeError, "must be a function"),  # type: ignore[arg-type]
        (lambda: DataParallelTrainer(lambda a, b: None), TypeError, "more than one argument"),
        (lambda: DataParallelTrainer(print, datasets={"x": iter([])}), TypeError, "must be a sequence"),
        (lambda: DataParallelTrainer(print, run_config={}), TypeError, "must be a RunConfig"),  # type: ignore[arg-type]
        (lambda: train.report({"loss": 1}), RuntimeError, "outside of a training function"),
        (train.get_context, RuntimeError, "outside of a training function"),
    ]
    for make, kind, text in bad:
        with pytest.raises(kind, match=text):
            make()


def test_shards_cut_arrays_and_columns() -> None:
    import numpy

    columns = {"x": numpy.arange(10), "y": list("abcdefghij")}
    shard = train.DatasetShard(columns, rank=1, world_size=3)
    assert len(shard) == 3 and shard[0] == {"x": 3, "y": "d"} and shard[-1]["y"] == "f"
    assert shard.data["x"].base is columns["x"], "a view"
    assert [list(batch["x"]) for batch in shard.iter_batches(batch_size=2)] == [[3, 4], [5]]
    assert len(list(shard.iter_batches(batch_size=2, drop_last=True))) == 1
    with pytest.raises(IndexError):
        shard[3]
    with pytest.raises(ValueError, match="same length"):
        train.DatasetShard({"x": [1], "y": []})
