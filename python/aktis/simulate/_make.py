"""`make_vec`: many environments as one `gymnasium.vector.VectorEnv`."""

from collections.abc import Callable
from typing import Any

from aktis.simulate._builtin import builtin_ids, is_builtin
from aktis.simulate._checks import checked_count


def import_gymnasium() -> Any:
    """Gymnasium, or an error that says how to get it."""
    try:
        import gymnasium
    except ImportError as error:
        raise ImportError(
            "this needs Gymnasium, which is not installed\nhint: pip install 'gymnasium>=1.1', or 'aktis[rl]'"
        ) from error
    return gymnasium


def make_vec(env: str | Callable[[], Any], num_envs: int, *, seed: int | None = None, **kwargs: Any) -> Any:
    """Makes `num_envs` environments that are stepped together: a `gymnasium.vector.VectorEnv`.

    `env` is the id of an environment, or a function that makes one. If the id is that of a built-in
    environment, all of them run in Rust; otherwise, or with keyword arguments beside `autoreset_mode`, they
    are Gymnasium's own, to which the keyword arguments go (`gymnasium.make_vec`).

    Environment `i` has the seed `seed + i`, with which its episodes are the same built-in or not. The first
    `reset` without a seed of its own uses it.

    Episodes that have ended begin again by themselves, in the mode that `metadata["autoreset_mode"]` says:
    `NEXT_STEP` unless `autoreset_mode` says `SAME_STEP`. In the former, the step after the last one of an
    episode ignores its action, gives the reward 0 and returns the first observation of the next episode.

    >>> import aktis.simulate
    >>> envs = aktis.simulate.make_vec("CartPole-v1", 3, seed=1)
    >>> observations, infos = envs.reset()
    >>> observations.shape
    (3, 4)
    """
    gymnasium = import_gymnasium()
    num_envs = checked_count("num_envs", num_envs)
    if isinstance(env, str) and is_builtin(env) and kwargs.keys() <= {"autoreset_mode"}:
        from aktis.simulate._vector import BuiltinVectorEnv

        return BuiltinVectorEnv(env, num_envs, seed=seed, **kwargs)
    from aktis.simulate._vector import SeededVectorEnv

    if isinstance(env, str):
        if env.startswith("aktis/"):
            raise _no_such_builtin(env, kwargs)
        mode = kwargs.pop("autoreset_mode", None)
        if mode is not None:
            kwargs["vector_kwargs"] = {**kwargs.get("vector_kwargs", {}), "autoreset_mode": mode}
        try:
            envs = gymnasium.make_vec(env, num_envs, **kwargs)
        except gymnasium.error.UnregisteredEnv as error:
            raise ValueError(
                f"there is no environment {env!r}: {error}"
                f"\nhint: give an id that Gymnasium has registered, or one of {', '.join(builtin_ids())}"
            ) from error
    elif callable(env):
        envs = gymnasium.vector.SyncVectorEnv([env] * num_envs, **kwargs)
    else:
        raise TypeError(
            f"env must be an id or a function that makes an environment, got {env!r}"
            '\nhint: give an id such as "CartPole-v1", a class or a function'
        )
    return envs if seed is None else SeededVectorEnv(envs, seed)


def _no_such_builtin(env: str, kwargs: dict[str, Any]) -> Exception:
    if is_builtin(env):
        return TypeError(
            f"{env} takes no keyword arguments but autoreset_mode, got {', '.join(kwargs)}"
            "\nhint: leave them out"
        )
    return ValueError(
        f"there is no built-in environment {env!r}\nhint: the built-in ones are {', '.join(builtin_ids())}"
    )
