"""Runs the trials of an experiment: starts them where there is room, listens to them, and stores the state.

1. A trial waits in `report` for the controller's answer, so a scheduler's decision is never late.
2. The state is stored whenever a trial begins or ends, and now and then between; the folder of a trial has
   its reports and checkpoints. So a new driver can go on after this one is killed.
3. The failure of one trial touches no other.
"""

import contextlib
import os
import time
import traceback
import uuid
import warnings
from collections.abc import Mapping
from typing import Any

import aktis
from aktis.exceptions import AktisError
from aktis.train.checkpoint import Checkpoint, CheckpointError, replace_file, write_json
from aktis.train.config import RunConfig
from aktis.train.group import NoRoomError, first_ready, is_out_of_memory, reason_of
from aktis.train.session import Report, TrainContext
from aktis.train.storage import Part, RunFolder, read_files
from aktis.train.worker import Job, worker_class
from aktis.tune.callback import has_hooks
from aktis.tune.console import Table
from aktis.tune.schedulers import TrialScheduler
from aktis.tune.schedulers.scheduler import Decision
from aktis.tune.search import Searcher
from aktis.tune.stopper import Stopper
from aktis.tune.trainable import Runner
from aktis.tune.trial import (
    ERROR,
    PAUSED,
    PENDING,
    RUNNING,
    TERMINATED,
    Attempt,
    Trial,
    open_folder,
    read_folder,
)

STATE = "experiment.pkl"
"""The file in the experiment's folder that `Tuner.restore` reads."""

VERSION = 1
TICK_SECONDS = 0.5
"""How often the table is drawn and the time budget looked at while nothing happens."""

STORE_SHARE = 0.05
"""The share of its time that the controller may spend on storing the state between ends of trials."""


class TuneError(AktisError):
    """An experiment could not be run."""


class Controller:
    """Runs one experiment to its end."""

    def __init__(
        self,
        path: str,
        runner: Runner,
        searcher: Searcher,
        scheduler: TrialScheduler,
        trials: list[Trial],
        settings: Any,
        run_config: RunConfig,
        stored: Mapping[str, Any],
    ) -> None:
        self.path = path
        self.runner = runner
        self.searcher = searcher
        self.scheduler = scheduler
        self.trials = trials
        self.settings = settings
        self.run_config = run_config
        self._stored = stored
        self._running: dict[Any, Attempt] = {}
        self._waiting: list[Trial] = [trial for trial in trials if not trial.is_finished]
        self._folders: dict[str, RunFolder] = {}
        self._exhausted = False
        self._stopping = False
        self._began = time.monotonic()
        self._store_after = 0.0
        reporter = run_config.progress_reporter
        self._table = Table(run_config.verbose, settings.metric, mode=settings.mode, reporter=reporter)
        self._reports = 0

    def run(self) -> list[Trial]:
        """Runs until all trials are done, the time is over, or a trial failed that must not."""
        try:
            self._store()
            self._call_back("setup")
            while True:
                self._start_trials()
                if not self._running:
                    break
                stream = first_ready(self._running, TICK_SECONDS)
                if stream is not None:
                    self._on_ready(stream)
                budget = self.settings.time_budget_s
                if budget is not None and time.monotonic() - self._began > budget and not self._stopping:
                    self._stop_all()
                self._table.show(self.trials)
        finally:
            for attempt in self._running.values():
                self._kill(attempt)
            self._table.close(self.trials)
        self._store()
        self._call_back("on_experiment_end", trials=self.trials)
        return self.trials

    def _call_back(self, hook: str, **what: Any) -> None:
        """Calls a hook of all callbacks that have hooks."""
        for callback in self.run_config.callbacks:
            if has_hooks(callback) and (function := getattr(callback, hook, None)):
                function(**what)

    def _tell(self, hook: str, trial: Trial, **what: Any) -> None:
        """Calls a hook about a trial."""
        self._call_back(hook, iteration=self._reports, trials=self.trials, trial=trial, **what)

    def folder_of(self, trial: Trial) -> RunFolder:
        """The folder of a trial, with its reports and checkpoints."""
        if trial.id not in self._folders:
            try:
                self._folders[trial.id] = read_folder(trial, self.run_config.checkpoint_config)
            except CheckpointError as error:
                trial.error = trial.error or error
                self._folders[trial.id] = RunFolder(trial.path, self.run_config.checkpoint_config)
        return self._folders[trial.id]

    # --- starting -----------------------------------------------------------------------------

    def _start_trials(self) -> None:
        while not self._stopping:
            trial = self._next_trial()
            if trial is None:
                return
            room = self._room(trial)
            if len(self._running) >= room:
                return
            self._waiting.remove(trial)
            try:
                self._start(trial)
            except CheckpointError as error:
                # What a damaged folder of one trial says must not end the others.
                self._give_up(trial, error)
                self._store()

    def _next_trial(self) -> Trial | None:
        """The trial that is to run next. It stays in line until there is room for it."""
        if not self._waiting and not self._exhausted:
            identity = uuid.uuid4().hex[:8]
            config = self.searcher.suggest(identity)
            if isinstance(config, dict):
                self._waiting.append(self._new_trial(identity, config))
            elif config == Searcher.FINISHED:
                self._exhausted = True
            elif not self._running:
                raise TuneError(
                    f"{type(self.searcher).__name__} suggests nothing although no trial runs"
                    "\nhint: see why its `suggest` returns nothing"
                )
        return self._waiting[0] if self._waiting else None

    def _new_trial(self, identity: str, config: dict[str, Any]) -> Trial:
        number = len(self.trials)
        name = f"{self.runner.name()}_{number:05}_{identity}"
        trial = Trial(identity, number, name, config, os.path.join(self.path, name))
        self.scheduler.on_trial_add(identity, trial.config)
        self.trials.append(trial)
        return trial

    def _room(self, trial: Trial) -> int:
        """How many trials like this one may run at once."""
        limit = self.settings.max_concurrent_trials or getattr(self.searcher, "max_concurrent", 0) or None
        needed = {name: amount for name, amount in self.runner.total(trial.config).items() if amount}
        present = aktis.cluster_resources()
        room = min(
            (int(present.get(name, 0.0) / amount + 1e-9) for name, amount in needed.items()), default=64
        )
        if room == 0:
            show = ", ".join(
                f"{amount:g} {name} of {present.get(name, 0.0):g}" for name, amount in needed.items()
            )
            raise NoRoomError(
                f"a trial needs more than the cluster has: {show}\n"
                "hint: ask for less with `with_resources`, or add nodes"
            )
        return room if limit is None else min(room, limit)

    def _start(self, trial: Trial) -> None:
        folder = self._folders[trial.id] = open_folder(trial, self.run_config.checkpoint_config)
        held = self.runner.resources(trial.config)
        options: dict[str, Any] = {"num_cpus": held.pop("CPU", 0), "num_gpus": held.pop("GPU", 0)}
        if "memory" in held:
            options["memory"] = int(held.pop("memory"))
        if others := {name: amount for name, amount in held.items() if amount}:
            options["resources"] = others
        handle = worker_class().options(**options).remote()
        now = time.monotonic()
        attempt = Attempt(trial, folder, handle, now, trial.seconds, now)
        latest = folder.latest()
        folder.rewind(latest)
        trial.status = RUNNING
        write_json(os.path.join(trial.path, "params.json"), trial.config)
        self._run(attempt, latest)
        self._store()
        self._tell("on_trial_start", trial)

    def _run(self, attempt: Attempt, checkpoint: Checkpoint | None) -> None:
        trial = attempt.trial
        context = TrainContext(
            experiment_name=os.path.basename(self.path),
            run_folder=trial.path,
            trial_id=trial.id,
            trial_name=trial.name,
            trial_resources=self.runner.resources(trial.config),
        )
        files = None
        if checkpoint is not None and len(aktis.nodes()) > 1:
            files = aktis.put(read_files(checkpoint.path))
        staging = attempt.folder.staging
        job = Job(self.runner, (trial.config,), context, staging, checkpoint, files, lockstep=True)
        self._running[attempt.handle.run.options(num_returns="streaming").remote(job)] = attempt

    # --- listening ----------------------------------------------------------------------------

    def _on_ready(self, stream: Any) -> None:
        attempt = self._running[stream]
        try:
            report: Report = aktis.get(next(stream))
        except StopIteration:
            del self._running[stream]
            self._on_ended(attempt)
            return
        except Exception as error:
            del self._running[stream]
            self._on_failed(attempt, error)
            return
        try:
            self._on_report(attempt, report)
        except Exception as error:
            # What a trial reports must not end the others: a metric that is missing, a callback that raises.
            self._running.pop(stream, None)  # a stopper may have ended all trials
            self._on_failed(attempt, error)

    def _on_report(self, attempt: Attempt, report: Report) -> None:
        trial, folder = attempt.trial, attempt.folder
        if report.only_files:
            self._commit(attempt, report.part, trial.last_result)
            return
        now = time.monotonic()
        trial.seconds = attempt.seconds_before + now - attempt.began
        result = {
            **report.metrics,
            "training_iteration": len(folder.history) + 1,
            "trial_id": trial.id,
            "time_this_iter_s": now - attempt.reported,
            "time_total_s": trial.seconds,
            "timestamp": int(time.time()),
            "done": bool(report.metrics.get("done")),
        }
        attempt.reported = now
        trial.last_result = result
        folder.append(result)
        self._commit(attempt, report.part, result)
        self._check_metric(result)
        self._reports += 1
        for callback in self.run_config.callbacks:
            if not has_hooks(callback):
                callback(result)
        self._tell("on_trial_result", trial, result=result)
        self.searcher.on_trial_result(trial.id, result)
        self._carry_out(attempt, self._decide(trial, result))
        stop = self.run_config.stop
        if isinstance(stop, Stopper) and not self._stopping and stop.stop_all():
            self._stop_all()
        self._store_sometimes()

    def _commit(self, attempt: Attempt, part: Part | None, metrics: dict[str, Any]) -> None:
        if part is not None:
            saved = attempt.folder.commit([part], metrics, len(attempt.folder.history))
            self._tell("on_checkpoint", attempt.trial, checkpoint=saved)

    def _check_metric(self, result: dict[str, Any]) -> None:
        metric = self.settings.metric
        if metric is not None and metric not in result:
            reported = sorted(set(result) - {"trial_id", "timestamp", "done"})
            raise TuneError(
                f"the trial reported no {metric!r}, which TuneConfig names as the metric, but {reported}"
                "\nhint: report it, or name another metric"
            )

    def _decide(self, trial: Trial, result: dict[str, Any]) -> Decision:
        stop = self.run_config.stop
        if self._stopping or result["done"]:
            return TrialScheduler.STOP
        if callable(stop):
            if stop(trial.id, result):
                return TrialScheduler.STOP
        elif stop is not None and any(
            name in result and result[name] >= bound for name, bound in stop.items()
        ):
            return TrialScheduler.STOP
        waiting = len(self._waiting)
        if not waiting and not self._exhausted:
            self._next_trial()
            waiting = len(self._waiting)
        return self.scheduler.on_trial_result(trial.id, trial.config, result, waiting)

    def _carry_out(self, attempt: Attempt, decision: Decision) -> None:
        folder = attempt.folder
        if decision.kind == "PAUSE":
            # Without a checkpoint of this very report, work would be lost.
            latest = folder.latest()
            if latest is None or latest.manifest().get("reports") != len(folder.history):
                decision = TrialScheduler.CONTINUE
            else:
                attempt.then = PAUSED
        if decision.kind == "EXPLOIT":
            decision = self._exploit(attempt, decision)
        attempt.handle.answer.remote(decision.kind == "CONTINUE")

    def _exploit(self, attempt: Attempt, decision: Decision) -> Decision:
        donor = next(trial for trial in self.trials if trial.id == decision.donor)
        source = self.folder_of(donor).latest()
        if source is None:
            warnings.warn(
                f"{donor.name} is better and has saved no checkpoint, so {attempt.trial.name} goes on alone\n"
                "hint: population based training needs `report(..., checkpoint=...)`",
                stacklevel=2,
            )
            return TrialScheduler.CONTINUE
        files = Part(0, files=read_files(source.path))
        attempt.next_checkpoint = attempt.folder.commit(
            [files], attempt.trial.last_result, len(attempt.folder.history)
        )
        attempt.next_config = dict(decision.config or donor.config)
        return decision

    # --- ending -------------------------------------------------------------------------------

    def _on_ended(self, attempt: Attempt) -> None:
        trial = attempt.trial
        if attempt.next_config is not None and not self._stopping:
            trial.config, attempt.next_config = attempt.next_config, None
            write_json(os.path.join(trial.path, "params.json"), trial.config)
            self._run(attempt, attempt.next_checkpoint)
            self._store_sometimes()
            return
        self._kill(attempt)
        trial.status = attempt.then
        if trial.status == PAUSED and not self._stopping:
            self._waiting.append(trial)
        else:
            trial.status = TERMINATED
            attempt.folder.close()
            self._finish(trial, failed=False)
        self._store()

    def _on_failed(self, attempt: Attempt, error: BaseException) -> None:
        trial = attempt.trial
        self._kill(attempt)
        trial.failures += 1
        trial.seconds = attempt.seconds_before + time.monotonic() - attempt.began
        failure = self.run_config.failure_config
        if failure.allows(trial.failures) and not isinstance(error, TuneError) and not self._stopping:
            trial.status = PENDING
            self._waiting.append(trial)
        else:
            self._give_up(trial, error)
        self._store()

    def _give_up(self, trial: Trial, error: BaseException) -> None:
        """The trial has failed for good."""
        trial.status = ERROR
        trial.error = plain_error(error)
        with open(os.path.join(trial.path, "error.txt"), "w", encoding="utf-8") as file:
            file.write(f"{reason_of(error)}\n{''.join(traceback.format_exception(error))}")
            if is_out_of_memory(error):
                file.write("hint: use smaller batches, or let fewer trials run at once (with_resources)\n")
        self._table.note(f"the trial {trial.name} failed: {reason_of(error).splitlines()[0]}")
        self._finish(trial, failed=True)
        if self.run_config.failure_config.fail_fast:
            self._stop_all()

    def _finish(self, trial: Trial, failed: bool) -> None:
        self.scheduler.on_trial_complete(trial.id)
        self.searcher.on_trial_complete(trial.id, trial.last_result or None, failed)
        self._tell("on_trial_error" if failed else "on_trial_complete", trial)

    def _stop_all(self) -> None:
        """Ends all trials at once; what they have reported stays."""
        self._stopping = True
        self._waiting.clear()
        for stream, attempt in list(self._running.items()):
            del self._running[stream]
            attempt.then = TERMINATED
            self._on_ended(attempt)

    def _kill(self, attempt: Attempt) -> None:
        with contextlib.suppress(AktisError):
            aktis.kill(attempt.handle)

    # --- state --------------------------------------------------------------------------------

    def _store_sometimes(self) -> None:
        if time.monotonic() >= self._store_after:
            self._store()

    def _store(self) -> None:
        import cloudpickle

        began = time.monotonic()
        state = {
            **self._stored,
            "version": VERSION,
            "trials": self.trials,
            "searcher": self.searcher,
            "scheduler": self.scheduler,
        }
        try:
            data = cloudpickle.dumps(state)
        except (TypeError, AttributeError, ValueError) as error:
            raise TuneError(
                f"the state of the experiment cannot be pickled: {error}\n"
                "hint: large or open things belong into `with_parameters`, or are made in the trial"
            ) from error
        replace_file(os.path.join(self.path, STATE), data)
        now = time.monotonic()
        self._store_after = now + (now - began) / STORE_SHARE


def plain_error(error: BaseException) -> BaseException:
    """The error if it can be stored, else its text."""
    import cloudpickle

    try:
        cloudpickle.loads(cloudpickle.dumps(error))
    except Exception:
        return TuneError(str(error))
    return error
