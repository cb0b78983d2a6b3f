"""Stoppers and callbacks; searches without end come to an end, and a short form is resumed."""

import pickle
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from aktis import tune
from aktis.tune import RunConfig, TuneConfig, Tuner
from aktis.tune.search import BasicVariantGenerator
from aktis.tune.stopper import (
    CombinedStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    Stopper,
    TimeoutStopper,
    TrialPlateauStopper,
)
from support import wait_until


def stops(stopper: Stopper, values: list[float], trial: str = "a") -> list[bool]:
    """What the stopper says of each report of a trial."""
    return [
        stopper(trial, {"loss": value, "training_iteration": number})
        for number, value in enumerate(values, start=1)
    ]


def test_single_trials_are_ended() -> None:
    assert stops(MaximumIterationStopper(2), [1, 1, 1]) == [False, True, True]
    assert stops(FunctionStopper(lambda _, result: result["loss"] < 1), [2, 0]) == [False, True]
    flat = TrialPlateauStopper("loss", std=0.1, num_results=2, grace_period=3)
    assert stops(flat, [1, 1, 5, 5, 5.1]) == [False, False, False, True, True]
    assert stops(flat, [5], "b") == [False], "trials do not share what they have reported"
    low = TrialPlateauStopper("loss", num_results=2, grace_period=1, metric_threshold=2, mode="min")
    assert stops(low, [3, 3, 2, 2]) == [False, False, False, True]
    assert (
        stops(TrialPlateauStopper("loss", num_results=2, grace_period=1), [float("nan")] * 3) == [False] * 3
    )
    both = CombinedStopper(MaximumIterationStopper(3), FunctionStopper(lambda _, result: result["loss"] < 1))
    assert stops(both, [2, 0, 2]) == [False, True, True] and not both.stop_all()


def test_whole_experiments_are_ended() -> None:
    flat = ExperimentPlateauStopper("loss", top=2, std=0.1, patience=1)
    assert stops(flat, [5, 1, 1, 7, 7]) == [False, False, False, True, True] and flat.stop_all()
    best = ExperimentPlateauStopper("loss", top=2, std=0.1, mode="max")
    assert stops(best, [1, 1, 5, 4, 5]) == [False, True, False, False, True]
    for seconds in (1e9, timedelta(days=9)):
        late = TimeoutStopper(seconds)
        assert stops(late, [1, 1]) == [False, False] and not late.stop_all()
    over = TimeoutStopper(1e-9)
    wait_until(lambda: stops(over, [1])[0])
    assert CombinedStopper(late, over).stop_all()
    again = pickle.loads(pickle.dumps(late))
    again._used = 1e9
    assert stops(again, [1]) == [True], "what was used before counts"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MaximumIterationStopper(0), "`max_iter` must be at least 1"),
        (lambda: TimeoutStopper(0), "`timeout` must be a positive number of seconds"),
        (lambda: CombinedStopper(3), "a stopper must be a `Stopper`"),  # type: ignore[arg-type]
        (lambda: FunctionStopper(3), "`function` must be a function"),  # type: ignore[arg-type]
        (lambda: TrialPlateauStopper("x", metric_threshold=1.0), "`mode` must be"),
        (lambda: TuneConfig(num_samples=0), "`num_samples` must be at least 1"),
        (lambda: tune.run(steady, resume=True), "`resume` needs the `name`"),
        (lambda: tune.run(steady, resume="MAYBE", name="x"), "`resume` must be True, False or"),
    ],
)
def test_bad_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"{message}(.|\n)*\nhint: "):
        make()


def steady(config: dict[str, Any]) -> None:
    for _ in range(3):
        tune.report({"loss": config["x"]})


class AfterReports(Stopper):
    """Ends the experiment with its seventh report."""

    seen = 0

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.seen += 1
        return False

    def stop_all(self) -> bool:
        return self.seen >= 7


def test_a_search_without_end_ends_by_its_stopper(shared_session: Any, tmp_path: Path) -> None:
    grid = Tuner(
        steady,
        param_space={"x": tune.grid_search([1, 2])},
        tune_config=TuneConfig(num_samples=-1, max_concurrent_trials=1),
        run_config=RunConfig(name="endless", storage_path=tmp_path, verbose=0, stop=AfterReports()),
    ).fit()
    # The trial that was next in line has not run.
    assert [result.config["x"] for result in grid if result.config][:3] == [1, 2, 1] and len(grid) <= 4
    assert [len(result.metrics_history) for result in grid][:3] == [3, 3, 1]
    assert grid.num_errors == 0 and not grid[-1].metrics_history[1:]


def test_draws_of_a_search_without_end_are_those_of_a_finite_one() -> None:
    space = {"x": tune.uniform(0, 1), "y": tune.grid_search([1, 2])}
    found = []
    for samples in (3, -1):
        search = BasicVariantGenerator([{"x": 7.0}], random_state=5)
        search.set_search_properties(None, None, space, samples)
        found.append([search.suggest(str(number)) for number in range(6)])
        assert (search.suggest("7") == search.FINISHED) == (samples == 3)
    assert found[0] == found[1] and found[0][0] == {"x": 7.0, "y": 1}


def test_the_short_form_resumes(shared_session: Any, tmp_path: Path) -> None:
    def fragile(config: dict[str, Any]) -> dict[str, Any]:
        with (tmp_path / "runs").open("a") as file:
            file.write("x")
        return {"loss": config["x"]}

    options: dict[str, Any] = {"name": "short", "storage_path": tmp_path, "verbose": 0}
    for _ in range(2):
        analysis = tune.run(fragile, config={"x": tune.grid_search([1, 2])}, resume="AUTO", **options)
        assert len(analysis) == 2
    assert (tmp_path / "runs").read_text() == "xx", "trials that are done do not run again"
    with pytest.raises(ValueError, match="there is no experiment in"):
        tune.run(fragile, resume=True, **{**options, "name": "other"})


class Journal(tune.Callback):
    """Writes down which hooks are called."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def setup(self, **info: Any) -> None:
        self.lines.append("setup")

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.lines.append(f"start {trial.config['x']}")

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
        assert trial.trial_id == result["trial_id"] and trial in trials
        self.lines.append(f"{iteration}: {result['loss']}")

    def on_checkpoint(self, iteration: int, trials: Any, trial: Any, checkpoint: Any, **info: Any) -> None:
        assert (Path(checkpoint.path) / "state").exists()
        self.lines.append("saved")

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.lines.append("done")

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.lines.append(f"failed: {trial.error}")

    def on_experiment_end(self, trials: Any, **info: Any) -> None:
        self.lines.append(f"end of {len(trials)}")


def test_callbacks_are_told_of_the_life_of_trials(shared_session: Any, tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "state").write_text("1")
            checkpoint = tune.Checkpoint.from_directory(folder) if config["x"] == 1 else None
            tune.report({"loss": config["x"]}, checkpoint=checkpoint)
        if config["x"] == 2:
            raise OSError("no licence")

    journal, seen = Journal(), list[Any]()
    Tuner(
        train,
        param_space={"x": tune.grid_search([1, 2])},
        tune_config=TuneConfig(max_concurrent_trials=1),
        run_config=RunConfig(name="told", storage_path=tmp_path, verbose=0, callbacks=[journal, seen.append]),
    ).fit()
    first = ["setup", "start 1", "saved", "1: 1", "done", "start 2", "2: 2"]
    assert journal.lines[:7] == first and journal.lines[8:] == ["end of 2"]
    assert journal.lines[7].startswith("failed: ") and "no licence" in journal.lines[7]
    assert [metrics["loss"] for metrics in seen] == [1, 2]


class Failing(tune.Callback):
    """Cannot bear that a trial ends."""

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        raise OSError("the journal is full")


def test_a_hook_that_raises_when_a_stopper_ends_all_is_the_error(shared_session: Any, tmp_path: Path) -> None:
    grid = Tuner(
        steady,
        param_space={"x": 1},
        run_config=RunConfig(
            name="full",
            storage_path=tmp_path,
            verbose=0,
            callbacks=[Failing()],
            stop=ExperimentPlateauStopper("loss", top=1),
        ),
    ).fit()
    assert "the journal is full" in str(grid[0].error)
