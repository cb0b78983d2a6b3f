"""What is Ray's way under `aktis.compat` only, and variables of Ray's."""

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

    def run(text: str, **environment: str) -> CompletedProcess[str]:
        program = tmp_path / "program.py"
        program.write_text(textwrap.dedent(text))
        return run_program(["-m", "aktis.compat", str(program)], tmp_path, environment=environment)

    return run


def test_a_cancelled_task_may_give_a_value_after_all(ray_program: Run) -> None:
    done = ray_program(
        """
        import os, time
        import ray

        ray.init(num_cpus=1)

        @ray.remote
        def task(catches):
            try:
                open(f"begun-{catches}", "w").close()
                time.sleep(60)
            except KeyboardInterrupt:
                if catches:
                    return "caught", ray.get_runtime_context().is_canceled()
                raise

        for catches in (True, False):
            reference = task.remote(catches)
            while not os.path.exists(f"begun-{catches}"):
                time.sleep(0.01)
            ray.cancel(reference)
            try:
                print(ray.get(reference, timeout=20))
            except ray.exceptions.RayTaskError as error:
                print(isinstance(error, ray.exceptions.TaskCancelledError), "was cancelled" in str(error))
        """
    )
    assert done.stdout == "('caught', True)\nTrue True\n"


def test_a_dropped_generator_runs_to_its_end(ray_program: Run) -> None:
    done = ray_program(
        """
        import os, time
        import ray

        ray.init(num_cpus=1)

        @ray.remote(_generator_backpressure_num_objects=1)
        def numbers():
            yield from range(5)
            open("end", "w").close()

        generator = numbers.remote()
        print(ray.get(next(generator)))
        del generator
        while not os.path.exists("end"):
            time.sleep(0.01)
        """
    )
    assert done.stdout == "0\n"


def test_small_arrays_are_read_only(ray_program: Run) -> None:
    done = ray_program(
        """
        import numpy, ray

        try:
            ray.get(ray.put(numpy.full((2, 2), 1.0)))[0, 0] = 9
        except ValueError as error:
            print(error)
        """
    )
    assert done.stdout == "assignment destination is read-only\n"


def test_references_out_of_band_can_be_forbidden(ray_program: Run) -> None:
    program = """
        import ray, cloudpickle
        from ray.exceptions import OufOfBandObjectRefSerializationException as Forbidden

        reference = ray.put(1)

        def kind(function):
            try:
                function()
            except Forbidden:
                return "forbidden"
            return "fine"

        def captures():
            return ray.get(reference)

        @ray.remote
        def pickles(container):
            return kind(lambda: cloudpickle.dumps(container[0]))

        print(kind(lambda: ray.get(ray.remote(captures).remote())), ray.get(pickles.remote([reference])))
        """
    assert ray_program(program).stdout == "fine fine\n"
    forbidden = ray_program(program, RAY_allow_out_of_band_object_ref_serialization="0")
    assert forbidden.stdout == "forbidden forbidden\n"


@pytest.mark.parametrize(("setting", "seen"), [("0", "None"), ("1", "''")])
def test_who_asks_for_no_gpu_sees_what_the_node_sees(ray_program: Run, setting: str, seen: str) -> None:
    done = ray_program(
        """
        import os
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        import ray

        ray.init(num_cpus=1, num_gpus=1)
        print(repr(ray.get(ray.remote(lambda: os.environ.get("CUDA_VISIBLE_DEVICES")).remote())))
        print(ray.get(ray.remote(num_gpus=1)(lambda: os.environ["CUDA_VISIBLE_DEVICES"]).remote()))
        """,
        RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=setting,
    )
    assert done.stdout == f"{seen}\n0\n"


def test_the_program_is_a_module_of_its_own_name(ray_program: Run) -> None:
    done = ray_program(
        """
        import ray

        @ray.remote
        def f():
            return ray.get_runtime_context().get_task_function_name()

        print(ray.get(f.options(name="other").remote()))
        """
    )
    assert done.stdout == "program.f\n"
