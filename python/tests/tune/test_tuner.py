"""Experiments: results, errors, checkpoints, schedulers, searchers, and what survives kill -9."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import aktis
from aktis import train, tune
from aktis.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig
from aktis.tune import TuneConfig, Tuner
from aktis.tune.schedulers import ASHAScheduler, PopulationBasedTraining
from aktis.tune.search import BasicVariantGenerator, ConcurrencyLimiter
from support import wait_until


def run(tmp_path: Path, **options: Any) -> RunConfig:
    return RunConfig(**{"name": "experiment", "storage_path": tmp_path, "verbose": 0, **options})


def save(metrics: dict[str, Any], state: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "state.json").write_text(json.dumps(state))
        tune.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def load(default: dict[str, Any]) -> dict[str, Any]:
    checkpoint = tune.get_checkpoint()
    if checkpoint is None:
        return default
    with checkpoint.as_directory() as folder:
        return dict(json.loads((Path(folder) / "state.json").read_text()))


def parabola(config: dict[str, Any]) -> None:
    for step in range(3):
        tune.report({"loss": (config["x"] - 3) ** 2 + 1 / (step + 1)})


class Count(tune.Trainable):
    """Counts, with checkpoints as dictionaries."""

    def setup(self, config: dict[str, Any], offset: int = 0) -> None:
        self.count = offset

    def step(self) -> dict[str, Any]:
        self.count += self.config["by"]
        return {"count": self.count, "pid": os.getpid()}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"count": self.count}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.count = checkpoint["count"]


def test_the_best_of_a_grid_is_found(shared_session: Any, tmp_path: Path) -> None:
    seen: list[Any] = []
    tuner = Tuner(
        parabola,
        param_space={"x": tune.grid_search([1, 3, 4])},
        tune_config=TuneConfig(metric="loss", mode="min"),
        run_config=run(tmp_path, callbacks=[seen.append]),
    )
    grid = tuner.fit()
    assert [result.config["x"] for result in grid if result.config] == [1, 3, 4]
    best = grid.get_best_result()
    assert best.config == {"x": 3} and best.metrics is not None
    assert best.metrics["loss"] == pytest.approx(1 / 3) and best.metrics["training_iteration"] == 3
    assert best.metrics["config"] == {"x": 3} and len(seen) == 9
    assert len({result.path for result in grid}) == 3 and grid.num_errors == 0
    frame = grid.get_dataframe()
    assert list(frame["config/x"]) == [1, 3, 4] and frame["loss"].idxmin() == 1
    with pytest.raises(RuntimeError, match="no trial has reported 'accuracy'"):
        grid.get_best_result("accuracy", "max")


def test_one_trial_that_fails_harms_no_other(shared_session: Any, tmp_path: Path) -> None:
    def fragile(config: dict[str, Any]) -> dict[str, Any]:
        if config["x"] == 1:
            raise ValueError("one is too few")
        if config["x"] == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if config["x"] == 3:
            return {"other": 1}
        if config["x"] == 4:
            bytearray(1 << 60)
        return {"loss": float("nan") if config["x"] == 5 else config["x"]}

    grid = Tuner(
        fragile,
        param_space={"x": tune.grid_search([0, 1, 2, 3, 4, 5])},
        tune_config=TuneConfig(metric="loss", mode="min"),
        run_config=run(tmp_path),
    ).fit()
    assert grid.num_errors == 4 and grid.get_best_result().config == {"x": 0}
    assert isinstance(grid[4].error, MemoryError)
    assert "\nhint: use smaller batches" in (Path(grid[4].path) / "error.txt").read_text()
    assert isinstance(grid[1].error, ValueError) and "SIGKILL" in str(grid[2].error)
    assert "reported no 'loss'" in str(grid[3].error)
    assert "one is too few" in (Path(grid[1].path) / "error.txt").read_text()


def test_a_killed_trial_goes_on_from_its_checkpoint(shared_session: Any, tmp_path: Path) -> None:
    def stubborn(config: dict[str, Any]) -> None:
        state = load({"step": 0, "first": 0})
        for step in range(state["step"] + 1, 5):
            if step == 3 and not os.path.exists(config["marker"]):
                Path(config["marker"]).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            save({"step": step, "first": state["step"]}, {"step": step})

    [result] = Tuner(
        stubborn,
        param_space={"marker": str(tmp_path / "marker")},
        run_config=run(tmp_path, failure_config=FailureConfig(max_failures=1)),
    ).fit()
    assert result.error is None and result.failures == 1
    assert [(row["step"], row["first"]) for row in result.metrics_history] == [(1, 0), (2, 0), (3, 2), (4, 2)]
    assert [row["training_iteration"] for row in result.metrics_history] == [1, 2, 3, 4]


def test_class_trainables_save_and_stop(shared_session: Any, tmp_path: Path) -> None:
    checkpoints = CheckpointConfig(checkpoint_frequency=2, checkpoint_at_end=True)
    [result] = Tuner(
        tune.with_parameters(Count, offset=100),
        param_space={"by": 5},
        run_config=run(tmp_path, stop={"training_iteration": 3}, checkpoint_config=checkpoints),
    ).fit()
    assert [row["count"] for row in result.metrics_history] == [105, 110, 115]
    assert [metrics["count"] for _, metrics in result.best_checkpoints] == [110, 115]


def test_asha_spends_less_on_bad_trials(shared_session: Any, tmp_path: Path) -> None:
    def slope(config: dict[str, Any]) -> None:
        for step in range(1, 100):
            tune.report({"score": config["x"] * step})

    grid = Tuner(
        slope,
        param_space={"x": tune.grid_search([4, 3, 2, 1])},
        tune_config=TuneConfig(
            metric="score",
            mode="max",
            max_concurrent_trials=1,
            scheduler=ASHAScheduler(max_t=8, grace_period=2, reduction_factor=2),
        ),
        run_config=run(tmp_path),
    ).fit()
    assert [len(result.metrics_history) for result in grid] == [8, 2, 2, 2]
    assert grid.get_best_result().config == {"x": 4}


def test_population_based_training_copies_the_better_trial(shared_session: Any, tmp_path: Path) -> None:
    def climb(config: dict[str, Any]) -> None:
        state = load({"height": 0.0, "step": 0})
        height = state["height"]
        for step in range(state["step"] + 1, 13):
            height += config["rate"]
            save({"height": height, "rate": config["rate"]}, {"height": height, "step": step})

    scheduler = PopulationBasedTraining(
        perturbation_interval=3,
        quantile_fraction=0.5,
        resample_probability=0.0,
        hyperparam_mutations={"rate": tune.uniform(0, 10)},
        seed=1,
    )
    grid = Tuner(
        climb,
        param_space={"rate": tune.grid_search([0.001, 1.0, 0.002])},
        tune_config=TuneConfig(metric="height", mode="max", scheduler=scheduler, max_concurrent_trials=1),
        run_config=run(tmp_path, checkpoint_config=CheckpointConfig(num_to_keep=2)),
    ).fit()
    assert grid.num_errors == 0
    # They take turns, one at a time. Alone, 0.001 climbs to 0.012.
    # A trial that was copied has the height and the rate of a better one.
    copied = [result for result in grid if result.metrics_history[0]["rate"] < 0.1]
    assert any(result.metrics is not None and result.metrics["height"] > 3 for result in copied)
    for result in grid:
        assert result.checkpoint is not None
        with result.checkpoint.as_directory() as folder:
            assert json.loads((Path(folder) / "state.json").read_text())["step"] == 12


def test_trials_hold_resources_and_run_at_most_so_many_at_once(shared_session: Any, tmp_path: Path) -> None:
    def look(config: dict[str, Any], data: list[int]) -> dict[str, Any]:
        held = aktis.get_runtime_context().get_assigned_resources()
        return {"cpus": held["CPU"], "total": sum(data)}

    trainable = tune.with_resources(tune.with_parameters(look, data=[1, 2, 3]), {"cpu": 1.5})
    grid = Tuner(trainable, tune_config=TuneConfig(num_samples=3), run_config=run(tmp_path)).fit()
    assert [(row.metrics["cpus"], row.metrics["total"]) for row in grid if row.metrics] == [(1.5, 6)] * 3
    with pytest.raises(TimeoutError, match="a trial needs more than the cluster has: 64 CPU of 2"):
        Tuner(tune.with_resources(look, {"cpu": 64}), run_config=run(tmp_path, name="large")).fit()


def test_searchers_are_asked_and_told(shared_session: Any, tmp_path: Path) -> None:
    class Halving(tune.search.Searcher):
        """Goes to the better half of an interval; needs each result before it suggests the next."""

        def __init__(self) -> None:
            super().__init__()
            self.low, self.high, self.asked = 0.0, 8.0, 0

        def suggest(self, trial_id: str) -> Any:
            self.asked += 1
            return {"x": (self.low + self.high) / 2} if self.asked <= 6 else self.FINISHED

        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
            middle = (self.low + self.high) / 2
            self.low, self.high = (middle, self.high) if result["slope"] < 0 else (self.low, middle)

    def slope(config: dict[str, Any]) -> dict[str, Any]:
        return {"slope": 2 * (config["x"] - 3)}

    grid = Tuner(
        slope,
        tune_config=TuneConfig(search_alg=ConcurrencyLimiter(Halving(), 1)),
        run_config=run(tmp_path),
    ).fit()
    assert [result.config["x"] for result in grid if result.config] == [4, 2, 3, 2.5, 2.75, 2.875]


def test_optuna_finds_the_minimum(shared_session: Any, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    from aktis.tune.search.optuna import OptunaSearch

    def bowl(config: dict[str, Any]) -> dict[str, Any]:
        return {"loss": (config["x"] - 2) ** 2 + config["deep"]["n"] + (config["kind"] == "bad")}

    space = {
        "x": tune.uniform(-10, 10),
        "deep": {"n": tune.randint(0, 3)},
        "kind": tune.choice(["bad", "good"]),
    }
    grid = Tuner(
        bowl,
        param_space=space,
        tune_config=TuneConfig(metric="loss", mode="min", search_alg=OptunaSearch(seed=3), num_samples=30),
        run_config=run(tmp_path),
    ).fit()
    assert len(grid) == 30
    best = grid.get_best_result()
    assert best.metrics is not None and best.metrics["loss"] < 2
    with pytest.raises(ValueError, match="cannot search x"):
        search = TuneConfig(metric="loss", mode="min", search_alg=OptunaSearch())
        Tuner(bowl, param_space={"x": tune.grid_search([1])}, tune_config=search).fit()


def test_a_trainer_is_a_trainable(shared_session: Any, tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        size = train.get_context().get_world_size()
        for step in range(2):
            save({"value": config["x"] * size, "step": step}, {})

    trainer = train.DataParallelTrainer(
        loop, scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5})
    )
    grid = Tuner(
        trainer,
        param_space={"train_loop_config": {"x": tune.grid_search([1, 2])}},
        tune_config=TuneConfig(metric="value", mode="max"),
        run_config=run(tmp_path),
    ).fit()
    assert grid.num_errors == 0
    best = grid.get_best_result()
    assert best.metrics is not None and best.metrics["value"] == 4 and best.checkpoint is not None


def test_an_experiment_ends_with_its_time(shared_session: Any, tmp_path: Path) -> None:
    import threading

    def endless(config: dict[str, Any]) -> None:
        tune.report({"x": 1})
        threading.Event().wait()

    grid = Tuner(
        endless,
        tune_config=TuneConfig(num_samples=5, time_budget_s=0.5),
        run_config=run(tmp_path),
    ).fit()
    assert 1 <= len(grid) <= 5 and grid.num_errors == 0
    assert any(result.metrics for result in grid)


def test_tune_run_is_the_short_form(shared_session: Any, tmp_path: Path) -> None:
    analysis = tune.run(
        parabola,
        config={"x": tune.grid_search([1, 3])},
        metric="loss",
        mode="min",
        storage_path=tmp_path,
        verbose=0,
    )
    assert analysis.best_config == {"x": 3} and analysis.best_result["training_iteration"] == 3
    with pytest.raises(tune.TuneError, match="1 of 1 trials failed"):
        tune.run(lambda config: 1 / 0, storage_path=tmp_path, verbose=0)


def test_draws_are_repeatable(shared_session: Any, tmp_path: Path) -> None:
    def once(name: str) -> list[Any]:
        search = BasicVariantGenerator(random_state=5, points_to_evaluate=[{"x": 7.0}])
        grid = Tuner(
            lambda config: {"y": config["x"]},
            param_space={"x": tune.uniform(0, 1)},
            tune_config=TuneConfig(num_samples=3, search_alg=search),
            run_config=run(tmp_path, name=name),
        ).fit()
        return [result.config for result in grid]

    first = once("a")
    assert first == once("b") and first[0] == {"x": 7.0}


PROGRAM = """
    import json, os, sys, tempfile, time
    from pathlib import Path
    import aktis
    from aktis import tune

    storage, hold = sys.argv[1:]

    def count(config):
        checkpoint = tune.get_checkpoint()
        start = 0
        if checkpoint is not None:
            with checkpoint.as_directory() as folder:
                start = int((Path(folder) / "step").read_text())
        for step in range(start + 1, 5):
            if config["x"] == 1 and step == 3 and hold == "hold":
                Path(storage, "holding").touch()
                time.sleep(600)
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "step").write_text(str(step))
                tune.report({"step": step, "start": start}, checkpoint=tune.Checkpoint.from_directory(folder))

    aktis.init(num_cpus=1)
    if hold == "hold":
        run_config = tune.RunConfig(name="e", storage_path=storage)
        tuner = tune.Tuner(count, param_space={"x": tune.grid_search([0, 1, 2])}, run_config=run_config)
    else:
        tuner = tune.Tuner.restore(os.path.join(storage, "e"), count)
    grid = tuner.fit()
    print(json.dumps([[row["start"] for row in result.metrics_history] for result in grid]))
"""


def test_an_experiment_survives_its_driver(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    first = subprocess.Popen([sys.executable, str(program), str(tmp_path), "hold"])
    wait_until((tmp_path / "holding").exists, what="the second trial")
    first.kill()
    first.wait()
    second = subprocess.run(
        [sys.executable, str(program), str(tmp_path), "go"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    # The first trial was done, the second goes on from its checkpoint, the third had not begun.
    assert json.loads(second.stdout) == [[0, 0, 0, 0], [0, 0, 2, 2], [0, 0, 0, 0]]


@pytest.mark.parametrize("content", [b"", b"not a pickle", None], ids=["empty", "text", "truncated"])
def test_an_experiment_whose_state_is_damaged_is_refused(tmp_path: Path, content: bytes | None) -> None:
    state = tmp_path / "experiment.pkl"
    state.write_bytes(cloudpickle.dumps({"version": 1, "trials": []})[:-9] if content is None else content)
    with pytest.raises(
        tune.CheckpointError, match=r"the state of the experiment cannot be read from(.|\n)*\nhint: "
    ):
        Tuner.restore(tmp_path, parabola)


@pytest.mark.parametrize("state", [{"version": 99}, ["not", "a", "state"]])
def test_an_experiment_of_another_version_is_refused(tmp_path: Path, state: Any) -> None:
    (tmp_path / "experiment.pkl").write_bytes(cloudpickle.dumps(state))
    with pytest.raises(tune.CheckpointError, match=r"has version (99|None), and this Aktis reads 1\nhint: "):
        Tuner.restore(tmp_path, parabola)


def test_a_trial_whose_files_are_damaged_harms_no_other(shared_session: Any, tmp_path: Path) -> None:
    def two_steps(config: dict[str, Any]) -> None:
        for step in range(load({"step": 0})["step"], 2):
            save({"step": step}, {"step": step + 1})
            if config["fails"]:
                raise RuntimeError("for now")

    space = {"fails": True, "x": tune.grid_search([0, 1, 2])}
    grid = Tuner(two_steps, param_space=space, run_config=run(tmp_path)).fit()
    assert grid.num_errors == 3
    (Path(grid[0].path) / "run.json").write_text("{")
    (Path(grid[1].path) / "checkpoint_000000" / "state.json").write_text("{")

    def repaired(config: dict[str, Any]) -> None:
        two_steps({**config, "fails": False})

    with pytest.warns(UserWarning, match="goes on from an earlier checkpoint"):
        again = Tuner.restore(tmp_path / "experiment", repaired, resume_errored=True).fit()
    assert again.num_errors == 1 and isinstance(again[0].error, tune.CheckpointError)
    # The second begins anew without its checkpoint, and the third goes on from its own.
    assert [[row["step"] for row in result.metrics_history] for result in list(again)[1:]] == [[0, 1], [0, 1]]


def test_results_that_are_all_nan_are_named(shared_session: Any, tmp_path: Path) -> None:
    grid = Tuner(
        lambda config: {"loss": float("nan")},
        tune_config=TuneConfig(metric="loss", mode="min"),
        run_config=run(tmp_path),
    ).fit()
    with pytest.raises(
        RuntimeError, match=r"no trial has reported 'loss' as a number, but NaN(.|\n)*\nhint: "
    ):
        grid.get_best_result()


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="a trainable must be"):
        Tuner(3)
    with pytest.raises(TypeError, match="subclass of"):
        Tuner(dict)
    with pytest.raises(ValueError, match="no experiment in"):
        Tuner.restore(tmp_path, parabola)
    with pytest.raises(ValueError, match="ASHAScheduler needs `metric` and `mode`"):
        Tuner(parabola, tune_config=TuneConfig(scheduler=ASHAScheduler()))._begin()
    with pytest.raises(TypeError, match="resources must be"):
        tune.with_resources(parabola, 3)
    with pytest.raises(RuntimeError, match="no results yet"):
        Tuner(parabola).get_results()


def test_the_table_shows_running_trials_first() -> None:
    import io

    from aktis.tune.console import Table
    from aktis.tune.trial import Trial

    trials = [
        Trial("a", 0, "f_0", {"x": 0.123456, "deep": {"n": 2}}, "", "TERMINATED", last_result={"loss": 0.5}),
        Trial("b", 1, "f_1", {"x": 1.0, "deep": {"n": 3}}, "", "RUNNING"),
    ]
    stream = io.StringIO()
    table = Table(2, "loss", stream)
    table.close(trials)
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("trials: 1 running · 1 terminated")
    assert lines[1].split() == ["trial", "status", "x", "deep/n", "iteration", "loss"]
    assert lines[2].split()[0] == "f_1" and lines[3].split()[-1] == "0.5"
    quiet = Table(None, "loss", stream := io.StringIO())
    quiet.show(trials)
    quiet.close(trials)
    assert stream.getvalue() == "", "nothing where there is no terminal"


def test_the_table_shows_what_its_reporter_says() -> None:
    import io

    from aktis.tune.console import CLIReporter, Table
    from aktis.tune.trial import Trial

    trials = [
        Trial(name, number, name, {"x": 1, "deep": {"n": 2}}, "", last_result={"loss": loss, "time": 7})
        for number, (name, loss) in enumerate([("a", 2.0), ("b", float("nan")), ("c", 1.0)])
    ]
    reporter = CLIReporter(
        metric_columns={"loss": "L", "time": "T"},
        parameter_columns=["deep/n"],
        max_progress_rows=2,
        sort_by_metric=True,
    )
    Table(2, "loss", stream := io.StringIO(), mode="min", reporter=reporter).close(trials)
    rows = [line.split() for line in stream.getvalue().splitlines()[1:]]
    assert rows[0] == ["trial", "status", "deep/n", "iteration", "L", "T"]
    assert [row[0] for row in rows[1:]] == ["c", "a", "..."] and rows[1][2:] == ["2", "0", "1", "7"]
    with pytest.raises(TypeError, match="`metric_columns` must be a list of names"):
        CLIReporter(metric_columns="loss")
    with pytest.raises(TypeError, match="`progress_reporter` must be a CLIReporter"):
        Tuner(parabola, run_config=RunConfig(progress_reporter=3))
