"""Programs that were written for Ray run unchanged, with sessions, workers and subprocesses."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from support import run_program

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture
def ray_program(tmp_path: Path) -> Run:
    """Runs a program with `python -m aktis.compat`."""

    def run(text: str, *arguments: str, **options: object) -> CompletedProcess[str]:
        program = tmp_path / "program.py"
        program.write_text(textwrap.dedent(text))
        return run_program(["-m", "aktis.compat", str(program), *arguments], tmp_path, **options)

    return run


def test_tasks_objects_and_actors(ray_program: Run) -> None:
    done = ray_program(
        """
        import ray
        from ray.exceptions import RayTaskError
        from ray.util import ActorPool
        from ray.util.queue import Queue

        @ray.remote
        def square(x):
            return x * x

        @ray.remote
        class Counter:
            def __init__(self):
                self.n = 0

            def add(self):
                self.n += 1
                return self.n

        @ray.remote
        def fail():
            raise KeyError("x")

        if __name__ == "__main__":
            context = ray.init(num_cpus=2, include_dashboard=False, _system_config={"no_such_key": 1})
            assert ray.is_initialized() and ray.__version__ == "2.60.0"
            assert ray.get([square.remote(i) for i in range(4)]) == [0, 1, 4, 9]
            counter = Counter.remote()
            assert ray.get([counter.add.remote() for _ in range(3)]) == [1, 2, 3]
            try:
                ray.get(fail.remote())
            except RayTaskError as error:
                assert isinstance(error, KeyError) and isinstance(error.cause, KeyError)
            pool = ActorPool([Counter.remote()])
            assert list(pool.map(lambda actor, _: actor.add.remote(), range(2))) == [1, 2]
            queue = Queue()
            queue.put(1)
            assert queue.get() == 1
            assert isinstance(ray.put(1), ray.ObjectRef)
            assert len(ray.get_runtime_context().get_node_id()) > 10
            ray.shutdown()
            assert not ray.is_initialized()
            print("done")
        """
    )
    assert done.stdout.endswith("done\n")


def test_workers_and_their_subprocesses_see_the_same_modules(ray_program: Run) -> None:
    done = ray_program(
        """
        import ray

        @ray.remote
        def look():
            import subprocess, sys
            import aktis
            import ray, ray.exceptions, ray.train
            assert ray is aktis and ray.exceptions is aktis.exceptions
            check = "import ray, aktis; assert ray is aktis; print('subprocess')"
            output = subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, text=True)
            return output.stdout.strip(), ray.__version__

        @ray.remote
        class Actor:
            def error(self):
                from ray.exceptions import GetTimeoutError
                return GetTimeoutError

        ray.init(num_cpus=1)
        assert ray.get(look.remote()) == ("subprocess", "2.60.0")
        assert ray.get(Actor.remote().error.remote()) is ray.exceptions.GetTimeoutError
        print("done")
        """
    )
    assert done.stdout.endswith("done\n")


def test_importing_it_first_is_as_good(run_script: Run) -> None:
    done = run_script(
        """
        import aktis.compat
        import ray

        @ray.remote
        def where():
            import ray.util
            return ray.util.__name__

        ray.init(num_cpus=1)
        print(ray.get(where.remote()))
        """
    )
    assert done.stdout.endswith("aktis.util\n")


def test_what_is_missing_is_named_in_a_worker_too(ray_program: Run) -> None:
    done = ray_program(
        """
        import ray
        from ray.serve import run
        from ray.data import Dataset

        @ray.remote
        def train():
            run({"loss": 1})

        ray.init(num_cpus=1)
        try:
            ray.get(train.remote())
        except ray.exceptions.RayTaskError as error:
            print("ray.serve.run is not supported" in str(error), type(error.cause).__name__)
        """
    )
    assert done.stdout.endswith("True NotSupported\n")


def test_modules_on_the_drivers_path_are_found_by_workers(ray_program: Run, tmp_path: Path) -> None:
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "extra_module.py").write_text("def f(): return 'extra'\n")
    (tmp_path / "beside.py").write_text("def f(): return 'beside'\n")
    done = ray_program(
        """
        import sys
        sys.path.append(sys.argv[1])
        import ray

        @ray.remote
        def use():
            import beside, extra_module
            return beside.f(), extra_module.f()

        ray.init(num_cpus=1)
        print(ray.get(use.remote()))
        """,
        str(tmp_path / "extra"),
    )
    assert done.stdout.endswith("('beside', 'extra')\n")


def test_what_moved_is_found(ray_program: Run) -> None:
    done = ray_program(
        """
        import importlib
        import ray
        from aktis.compat._missing import Missing
        from aktis.compat._names import MOVED, PACKAGES

        for module, names in MOVED.items():
            for name in names:
                assert not isinstance(getattr(importlib.import_module(module), name), Missing), (module, name)
        for name in PACKAGES:
            assert importlib.import_module(name) is getattr(ray, name.removeprefix("ray.")), name
        from ray._raylet import StreamingObjectRefGenerator
        from ray.actor import ActorHandle, exit_actor
        from ray.runtime_context import get_runtime_context
        assert StreamingObjectRefGenerator is ray.ObjectRefGenerator
        assert get_runtime_context is ray.get_runtime_context
        print("done")
        """
    )
    assert done.stdout == "done\n"


def test_process_titles_are_rays(ray_program: Run) -> None:
    done = ray_program(
        """
        import os
        import ray

        def title():
            with open(f"/proc/{os.getpid()}/cmdline") as file:
                return file.read().split(chr(0))[0].strip()

        @ray.remote
        def task():
            return title()

        @ray.remote
        class Actor:
            def method(self):
                return title()

        ray.init(num_cpus=1)
        print(ray.get(task.remote()), ray.get(Actor.remote().method.remote()))
        """
    )
    assert done.stdout.endswith("ray::task ray::Actor.method\n") or done.stdout.endswith(
        "ray::task() ray::Actor.method()\n"
    )


def test_variables_of_rays(ray_program: Run) -> None:
    environment = {"RAY_NAMESPACE": "ours", "RAY_max_direct_call_object_size": "1000", "RAY_SOMETHING": "x"}
    done = ray_program(
        """
        import ray
        ray.init(num_cpus=1)
        print(ray.get_runtime_context().namespace)
        """,
        environment=environment,
    )
    assert done.stdout.endswith("ours\n")


def test_pytest_runs_under_it(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        textwrap.dedent(
            """
            import pytest, ray

            @pytest.fixture
            def cluster():
                yield ray.init(num_cpus=1)
                ray.shutdown()
            """
        )
    )
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent(
            """
            import pytest, ray
            from ray.util import nothing_that_exists

            class Broken(Exception): pass

            @ray.remote
            def square(x): return x * x

            @ray.remote
            def fail(): raise Broken

            def test_task(cluster):
                assert ray.get(square.remote(3)) == 9

            def test_error(cluster):
                with pytest.raises(Broken):
                    ray.get(fail.remote())
            """
        )
    )
    done = run_program(
        ["-m", "aktis.compat", "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        tmp_path,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr


def test_train_and_tune_under_rays_names(ray_program: Run, tmp_path: Path) -> None:
    done = ray_program(
        """
        import sys
        import ray
        from ray import train, tune
        from ray.air import RunConfig, session
        from ray.air.config import ScalingConfig
        from ray.train.data_parallel_trainer import DataParallelTrainer
        from ray.train.torch import TorchTrainer
        from ray.tune.schedulers import ASHAScheduler
        from ray.tune.search.basic_variant import BasicVariantGenerator

        def loop(config):
            session.report({"size": train.get_context().get_world_size()})

        def objective(config):
            tune.report({"loss": config["x"] ** 2})

        ray.init(num_cpus=2)
        run_config = RunConfig(storage_path=sys.argv[1], verbose=0)
        scaling = ScalingConfig(num_workers=2)
        print(DataParallelTrainer(loop, scaling_config=scaling, run_config=run_config).fit().metrics)
        tuner = tune.Tuner(
            objective,
            param_space={"x": tune.grid_search([-1, 0, 2])},
            tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=ASHAScheduler()),
            run_config=run_config,
        )
        print(tuner.fit().get_best_result().config)
        """,
        str(tmp_path),
    )
    assert done.stdout == "{'size': 2}\n{'x': 0}\n"


def test_a_cluster_of_a_program_is_found_by_others(ray_program: Run, tmp_path: Path) -> None:
    done = ray_program(
        """
        import subprocess, sys
        import ray
        from ray.cluster_utils import Cluster

        with Cluster(initialize_head=True, head_node_args={"num_cpus": 3}) as cluster:
            other = "import ray; ray.init('auto'); print(int(ray.cluster_resources()['CPU']))"
            subprocess.run([sys.executable, "-c", other], check=True)
            status = [sys.executable, "-m", "aktis._cli", "status"]
            print("1 node alive" in subprocess.run(status, check=True, capture_output=True, text=True).stdout)
        """,
        environment={"XDG_RUNTIME_DIR": str(tmp_path)},
    )
    assert done.stdout.split() == ["3", "True"], done.stderr


def test_another_version_than_the_clusters_is_refused(ray_program: Run) -> None:
    done = ray_program(
        """
        import ray
        from ray.cluster_utils import Cluster

        with Cluster(initialize_head=True) as cluster:
            ray.__version__ = "1.2.3"
            try:
                ray.init(cluster.address)
            except RuntimeError as error:
                print("mismatch" in str(error))
        """
    )
    assert done.stdout.split() == ["True"], done.stderr
