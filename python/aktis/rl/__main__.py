"""The command line: `python -m aktis.rl train ppo --env CartPole-v1`, and `resume` and `evaluate`."""

import argparse
import dataclasses
import importlib
import json
import sys
import time
import typing
from pathlib import Path
from typing import Any

from aktis.rl.algorithm import CHECKPOINT, Algorithm, TrainResult
from aktis.rl.config import options_of
from aktis.rl.errors import ConfigError, RLError
from aktis.rl.registry import ALGORITHMS, load

#: What the shell expects of a program that Ctrl-C has ended.
INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Does what the command line says; gives the exit code."""
    options = vars(_parser().parse_args(arguments))
    command = options.pop("command")
    try:
        return int(command(**options))
    except RLError as error:
        print("\n".join([f"error: {error}", *getattr(error, "__notes__", ())]), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def train(
    algorithm: str,
    env: str,
    env_arg: list[tuple[str, Any]] | None,
    directory: Path | None,
    quiet: bool,
    force: bool,
    settings: dict[str, Any],
) -> int:
    """Trains from the start."""
    kind = ALGORITHMS[algorithm]
    one = kind(_environment(env), env_kwargs=dict(env_arg or []), **settings)
    if directory is None:
        directory = Path("runs") / f"{algorithm}-{env.rpartition(':')[2]}-{one.config.seed}"
    if (directory / CHECKPOINT).exists() and not force:
        raise ConfigError(
            f"there is a checkpoint in {directory}\nhint: continue with `python -m aktis.rl resume "
            f"{directory / CHECKPOINT}`, or start over with --force"
        )
    one.directory = directory
    return _train(one, quiet)


def resume(
    checkpoint: Path,
    env: str | None,
    env_arg: list[tuple[str, Any]] | None,
    directory: Path | None,
    quiet: bool,
    steps: int | None,
) -> int:
    """Continues from a checkpoint."""
    settings: dict[str, Any] = {} if steps is None else {"total_steps": steps}
    place = checkpoint.parent if directory is None else directory
    one = load(
        *(checkpoint, None if env is None else _environment(env)),
        env_kwargs=dict(env_arg) if env_arg else None,
        directory=place,
        **settings,
    )
    return _train(one, quiet)


def evaluate(
    checkpoint: Path,
    env: str | None,
    env_arg: list[tuple[str, Any]] | None,
    episodes: int,
    seed: int | None,
    sample: bool,
) -> int:
    """Plays episodes with a trained policy, and prints how they went."""
    one = load(
        checkpoint,
        None if env is None else _environment(env),
        env_kwargs=dict(env_arg) if env_arg else None,
    )
    began = time.perf_counter()
    found = one.evaluate(episodes, seed=seed, greedy=not sample)
    seconds = time.perf_counter() - began
    print(f"{one.name} on {one.environment.name}, trained for {one.steps:,} steps")
    print(
        f"return over {episodes} episodes: {found.mean:.1f} ± {found.std:.1f}, "
        f"from {min(found.returns):.1f} to {max(found.returns):.1f}"
    )
    print(f"mean length {found.lengths.mean():.1f}; {seconds:.1f} s")
    return 0


def _train(one: Algorithm, quiet: bool) -> int:
    assert one.directory is not None
    path = one.directory / CHECKPOINT
    if not quiet:
        print(f"{one.name} on {one.environment.name}, seed {one.config.seed}; writing to {one.directory}")
    try:
        result = one.train(progress=False if quiet else None)
    except KeyboardInterrupt:
        print(
            f"\ninterrupted at step {one.steps:,}; saved {path}"
            f"\nhint: continue with `python -m aktis.rl resume {path}`",
            file=sys.stderr,
        )
        return INTERRUPTED
    if not quiet:
        print(_summary(one, result))
    return 0


def _summary(one: Algorithm, result: TrainResult) -> str:
    target = one.config.target_return
    if target is None:
        verdict = "done"
    else:
        verdict = f"{'reached' if result.solved else 'did not reach'} the target of {target:g}"
    found = f"mean return {result.mean_return:.1f}"
    if result.evaluation_return is not None:
        found = f"evaluation {result.evaluation_return:.1f}"
    faults = ""
    if one.latest_faults:
        faults = f"\n{result.faults} faults of environments, the latest: {one.latest_faults[-1]}"
    return (
        f"{verdict}: {found} after {result.steps:,} steps, {result.episodes:,} episodes, "
        f"{result.seconds:.1f} s{faults}"
        f"\nevaluate it with `python -m aktis.rl evaluate {result.checkpoint}`"
    )


def _environment(name: str) -> Any:
    """An id, or `module:attribute` for a class or function of the user's."""
    module_name, colon, attribute = name.partition(":")
    if not colon or "/" in name:
        return name
    sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"--env {name}: {error}\nhint: give an id such as CartPole-v1, or MODULE:CLASS"
        ) from error


# --- options ------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m aktis.rl",
        description="Train and evaluate policies by reinforcement learning.",
        epilog="example: python -m aktis.rl train ppo --env CartPole-v1 --seed 1",
    )
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_train(verbs)
    again = verbs.add_parser("resume", help="continue training from a checkpoint")
    again.add_argument("checkpoint", type=Path, metavar="CHECKPOINT")
    _add_environment(again, "needed only if it is a class or function of your own")
    again.add_argument("--directory", type=Path, help="where to write; default: the checkpoint's directory")
    again.add_argument("--steps", type=int, help="new total of steps")
    again.add_argument("--quiet", action="store_true", help="print errors only")
    again.set_defaults(command=resume)
    play = verbs.add_parser("evaluate", help="play episodes with a trained policy")
    play.add_argument("checkpoint", type=Path, metavar="CHECKPOINT")
    _add_environment(play, "needed only if it is a class or function of your own")
    play.add_argument("--episodes", type=int, default=100, help="default: 100")
    play.add_argument("--seed", type=int, help="seed of the environments")
    play.add_argument("--sample", action="store_true", help="sample actions instead of taking the likeliest")
    play.set_defaults(command=evaluate)
    return parser


def _add_environment(parser: Any, note: str, **options: Any) -> None:
    parser.add_argument("--env", metavar="ENV", help=f"id, or MODULE:CLASS; {note}", **options)
    parser.add_argument(
        "--env-arg",
        action="append",
        type=_argument,
        metavar="NAME=VALUE",
        help="an argument of the environment's constructor, as JSON or text; may be given several times",
    )


def _add_train(verbs: Any) -> None:
    outer = verbs.add_parser(
        "train", help="train a policy", description="Train a policy. Each algorithm has settings of its own."
    )
    kinds = outer.add_subparsers(title="algorithms", required=True, metavar="ALGORITHM")
    for name, kind in ALGORITHMS.items():
        summary = (kind.__doc__ or "").splitlines()[0]
        parser = kinds.add_parser(
            name,
            help=summary,
            description=f"{summary} Without a setting, the value that suits the environment is taken.",
        )
        _add_environment(parser, "any that Gymnasium has registered", required=True)
        parser.add_argument(
            "--directory",
            type=Path,
            help="where checkpoints and metrics go; default: runs/ALGORITHM-ENV-SEED",
        )
        parser.add_argument("--force", action="store_true", help="overwrite an existing checkpoint")
        parser.add_argument("--quiet", action="store_true", help="print errors only")
        group = parser.add_argument_group("settings")
        hints = typing.get_type_hints(kind.config_type)
        for field in dataclasses.fields(kind.config_type):
            flag = "--" + field.name.replace("_", "-")
            default = " ".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
            group.add_argument(
                flag,
                dest=f"setting:{field.name}",
                action=_Setting,
                type=_reader(hints[field.name]),
                nargs="+" if isinstance(field.default, tuple) else None,
                help=f"{field.metadata['help']} (usually {default})".replace("%", "%%"),
                metavar=field.name.rpartition("_")[2].upper(),
            )
        parser.set_defaults(command=train, algorithm=name, settings={})


class _Setting(argparse.Action):
    """Gathers the settings that were given, and only those."""

    def __init__(self, option_strings: Any, dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, default=argparse.SUPPRESS, **options)

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        name = self.dest.partition(":")[2]
        namespace.settings = {**namespace.settings, name: values}


def _argument(text: str) -> tuple[str, Any]:
    """A name and its value."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _reader(hint: Any) -> Any:
    """Reads the text of an option: a number where the field holds one."""
    wanted, optional = options_of(hint)

    def read(text: str) -> Any:
        if optional and text.lower() == "none":
            return None
        if wanted is str:
            return text
        if wanted is bool:
            if text.lower() not in ("true", "false"):
                raise argparse.ArgumentTypeError(f"must be true or false, got {text!r}")
            return text.lower() == "true"
        try:
            number = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a number, got {text!r}") from None
        return int(number) if number.is_integer() and wanted is not float else number

    return read


if __name__ == "__main__":
    sys.exit(main())
