"""How actors begin and end: hidden methods, exits, shutdown hooks, and what callers are told."""

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import aktis
from aktis import exceptions
from aktis.util import debug
from support import PATIENCE_SECONDS, Caller, Latch, get, wait_until


class Hiding:
    def __init__(self) -> None:
        self.value = 0  # hides the method of the same name

    def value(self, more: int = 1) -> int:  # type: ignore[no-redef]
        return type(self) is Hiding and more


class HidingAsync(Hiding):
    async def other(self) -> int:
        return 2


@pytest.mark.parametrize("options", [{}, {"max_concurrency": 2}])
def test_an_attribute_does_not_hide_a_method(shared_session: Any, options: dict[str, Any]) -> None:
    actor = aktis.remote(num_cpus=0, **options)(Hiding).remote()
    assert get(actor.value.remote(3)) == 3
    other = aktis.remote(num_cpus=0)(HidingAsync).remote()
    assert get([other.other.remote()]) == [2]


@aktis.remote(num_cpus=0)
class Leaver:
    def __init__(self, path: str | None = None, *, now: bool = False) -> None:
        import atexit

        if path is not None:
            atexit.register(Path(path).touch)
        if now:
            aktis.exit_actor()
            Path(path + "-after").touch()  # type: ignore[operator]

    def leave(self) -> None:
        aktis.exit_actor()

    def exit(self, code: int) -> None:
        sys.exit(code)

    def ok(self) -> int:
        return 1


@aktis.remote(num_cpus=0)
class AsyncLeaver:
    def __init__(self, path: str) -> None:
        import atexit

        atexit.register(Path(path).touch)

    async def later(self) -> str:
        import asyncio

        async def leave() -> None:
            await asyncio.sleep(0)
            aktis.exit_actor()

        self.task = asyncio.create_task(leave())
        return "begun"

    async def ok(self) -> int:
        return 1


def test_exit_in_the_constructor_ends_the_actor(shared_session: Any, tmp_path: Path) -> None:
    path = tmp_path / "left"
    actor = Leaver.remote(str(path), now=True)
    with pytest.raises(exceptions.ActorDiedError, match="INTENDED_USER_EXIT") as raised:
        get(actor.ok.remote())
    assert raised.value.actor_init_failed is False
    wait_until(path.exists, what="exit handlers to run")
    assert not (tmp_path / "left-after").exists()


def test_exit_in_a_coroutine_that_is_no_call_ends_the_actor(shared_session: Any, tmp_path: Path) -> None:
    path = tmp_path / "left"
    actor = AsyncLeaver.remote(str(path))
    assert get(actor.later.remote()) == "begun"
    wait_until(path.exists, what="exit handlers to run")
    with pytest.raises(exceptions.ActorDiedError, match="INTENDED_USER_EXIT"):
        get(actor.ok.remote())


def test_exit_outside_of_actors(no_session: Any) -> None:
    with pytest.raises(TypeError, match="exit_actor API is called on a non-actor worker"):
        aktis.exit_actor()
    assert not aktis.is_initialized()
    aktis.init(num_cpus=1)
    with pytest.raises(TypeError, match="exit_actor API is called on a non-actor worker"):
        get(aktis.remote(aktis.exit_actor).remote())


def test_callers_are_told_why_an_actor_is_dead(shared_session: Any) -> None:
    def died(actor: Any) -> exceptions.ActorDiedError:
        with pytest.raises(exceptions.ActorDiedError) as raised:
            get(actor.ok.remote())
        assert raised.value.actor_id == actor._actor_id.hex()
        return raised.value

    killed = Leaver.remote()
    get(killed.ok.remote())
    aktis.kill(killed)
    assert "The actor is dead because it was killed by `ray.kill`" in str(died(killed))

    waiting = Leaver.options(resources={"nothing has this": 1}).remote()
    aktis.kill(waiting)
    assert "The actor is dead because it was killed by `ray.kill`" in str(died(waiting))

    crashed = Leaver.remote()
    pid = get(crashed.__ray_call__.remote(lambda _: os.getpid()))
    os.kill(pid, 9)
    wait_until(lambda: "ALIVE" not in str(aktis.util.state.get_actor(crashed._actor_id.hex())))
    assert "The actor is dead because its worker process has died" in str(died(crashed))

    left = Leaver.remote()
    refs = [left.leave.remote(), left.ok.remote()]
    for ref in refs:
        with pytest.raises(exceptions.ActorDiedError, match="INTENDED_USER_EXIT") as raised:
            get(ref)
        assert raised.value.actor_id == left._actor_id.hex()

    def fail() -> None:
        raise ValueError("no")

    unmade = Caller.remote(fail)
    with pytest.raises(exceptions.ActorDiedError, match="no") as raised:
        get(unmade.pid.remote())
    assert raised.value.actor_init_failed is True


@pytest.mark.parametrize("code", [0, 3, None, "text"])
def test_sys_exit_is_the_death_of_the_process(shared_session: Any, code: Any) -> None:
    actor = Leaver.remote()
    with pytest.raises(exceptions.ActorDiedError):
        get(actor.exit.remote(code))


class Tries:
    """Fails in one way after the other, in whatever process it is."""

    def __init__(self, folder: str, ways: list[str]) -> None:
        self.folder, self.ways = Path(folder), ways

    def go(self) -> int:
        number = len(list(self.folder.iterdir()))
        (self.folder / str(number)).touch()
        way = self.ways[number] if number < len(self.ways) else ""
        if way == "exit":
            sys.exit(1)
        if way == "raise":
            raise ValueError("again")
        return number


def test_exits_use_restarts_and_retries(shared_session: Any, tmp_path: Path) -> None:
    actor_class = aktis.remote(num_cpus=0)(Tries)
    actor = actor_class.options(max_restarts=2, max_task_retries=2).remote(str(tmp_path), ["exit", "exit"])
    assert get(actor.go.remote()) == 2
    assert len(list(tmp_path.iterdir())) == 3


def test_exits_and_exceptions_share_one_budget(shared_session: Any, tmp_path: Path) -> None:
    actor_class = aktis.remote(num_cpus=0, max_restarts=1)(Tries)
    actor = actor_class.remote(str(tmp_path), ["raise", "exit", "exit"])
    with pytest.raises(exceptions.ActorError):
        get(actor.go.options(max_task_retries=4, retry_exceptions=True).remote())
    assert len(list(tmp_path.iterdir())) == 3


@aktis.remote(num_cpus=0)
class WithShutdown:
    def __init__(self, path: str, fails: bool = False) -> None:
        self.path, self.fails = Path(path), fails

    def ok(self) -> int:
        return 1

    def leave(self) -> None:
        aktis.exit_actor()

    def __ray_shutdown__(self) -> None:
        with self.path.open("a") as file:
            file.write("once ")
        if self.fails:
            raise ValueError("the end goes on")


@pytest.mark.parametrize("way", ["exit_actor", "terminate", "dropped", "fails"])
def test_the_shutdown_hook_runs_once_at_a_graceful_end(shared_session: Any, tmp_path: Path, way: str) -> None:
    path = tmp_path / "shut"
    actor = WithShutdown.remote(str(path), way == "fails")
    pid = get(actor.__ray_call__.remote(lambda _: os.getpid()))
    if way == "terminate":
        actor.__ray_terminate__.remote()
    elif way in ("exit_actor", "fails"):
        actor.leave.remote()
    else:
        del actor
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), what="the actor to end")
    assert path.read_text() == "once "


def test_the_shutdown_hook_does_not_run_after_kill(shared_session: Any, tmp_path: Path) -> None:
    path = tmp_path / "shut"
    actor = WithShutdown.remote(str(path))
    pid = get(actor.__ray_call__.remote(lambda _: os.getpid()))
    aktis.kill(actor)
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), what="the actor to end")
    assert not path.exists()


def test_a_call_has_the_title_that_it_is_given(shared_session: Any) -> None:
    actor = Caller.options(num_cpus=0).remote()

    def title() -> bytes:
        return Path("/proc/self/cmdline").read_bytes()

    assert b"::foo" in get(actor.call.options(name="foo").remote(title))
    assert b"::Caller.call" in get(actor.call.remote(title))


def test_a_constructor_may_be_a_coroutine(shared_session: Any) -> None:
    @aktis.remote(num_cpus=0)
    class Slow:
        async def __init__(self, value: int) -> None:  # type: ignore[misc]
            import asyncio

            await asyncio.sleep(0.01)
            self.value = value

        def get(self) -> int:
            return self.value

    assert get(Slow.remote(5).get.remote()) == 5


def test_what_dir_shows(shared_session: Any) -> None:
    def public(names: list[str]) -> set[str]:
        return {name for name in names if not name.startswith("_")}

    assert public(dir(Leaver)) == {"leave", "exit", "ok", "remote", "options", "bind"}
    actor = Leaver.remote()
    every = {"__init__", "__ray_ready__", "__ray_call__", "__ray_terminate__"}
    assert set(dir(actor)) == every | {"leave", "exit", "ok"}
    assert public(dir(actor.ok)) == {"remote", "options", "bind"}


def test_what_actor_classes_refuse() -> None:
    with pytest.raises(TypeError, match="cannot be instantiated directly"):
        Leaver()
    with pytest.raises(
        aktis.actor.ActorClassInheritanceException,
        match=r"Inheriting from actor classes is not currently supported\.",
    ):

        class Derived(Leaver):  # type: ignore[misc]
            pass


def test_store_memory_of_actors_is_deprecated(shared_session: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Leaver.options(object_store_memory=1 << 20).remote()
    texts = [str(warning.message) for warning in caught if warning.category is DeprecationWarning]
    assert any("Setting 'object_store_memory' for actors is deprecated" in text for text in texts)


def test_private_ways_to_call(shared_session: Any) -> None:
    assert get(Leaver._remote(num_cpus=0).ok._remote()) == 1
    assert get(aktis.remote(lambda x, y=0: x + y)._remote(args=[1], kwargs={"y": 2}, num_cpus=0)) == 3
    assert get(Leaver.remote().ok._remote(name="other")) == 1


def test_a_decorator_of_invocations_stands_before_the_call(shared_session: Any) -> None:
    def twice(invoke: Any) -> Any:
        return lambda args, kwargs: [invoke(args, kwargs), invoke([args[0] + 1], kwargs)]

    class Plain:
        def same(self, value: int) -> int:
            return value

        same.__ray_invocation_decorator__ = twice  # type: ignore[attr-defined]

    actor = aktis.remote(num_cpus=0)(Plain).remote()
    assert get(actor.same.remote(1)) == [1, 2]


def test_names_that_are_missing_or_taken(shared_session: Any) -> None:
    with pytest.raises(ValueError, match="Failed to look up actor with name"):
        aktis.get_actor("nobody")
    keep = Leaver.options(name="somebody").remote()
    with pytest.raises(ValueError, match=r"The name somebody \(namespace=.*\) is already taken"):
        Leaver.options(name="somebody").remote()
    assert get(keep.ok.remote()) == 1


def test_an_actor_and_the_task_that_makes_its_argument_share_a_resource() -> None:
    with aktis.Session(num_cpus=2, resources={"unit": 1}) as session:

        @aktis.remote(num_cpus=0, resources={"unit": 1})
        def make(latch: Latch) -> int:
            latch.wait()
            return 7

        @aktis.remote(num_cpus=0, resources={"unit": 1})
        class Keeper:
            def __init__(self, value: int, name: str = "") -> None:
                self.value = value

            def get(self) -> int:
                return self.value

        latch = Latch()
        keeper = Keeper.remote(make.remote(latch))
        value = keeper.get.remote()
        assert "arguments of its constructor" in aktis.explain(keeper)
        latch.open()
        assert session.get(value, timeout=PATIENCE_SECONDS) == 7


def test_arguments_of_a_killed_actor_are_freed_though_the_handle_is_held() -> None:
    with aktis.Session(num_cpus=1):

        @aktis.remote(resources={"absent": 1})
        class Waits:
            def __init__(self, values: list[Any]) -> None:
                pass

        waits = Waits.remote([aktis.put(bytes(1_000_000))])
        assert debug.store_stats()["all_objects"] == 1
        aktis.kill(waits)
        wait_until(lambda: debug.store_stats()["all_objects"] == 0, what="the argument to be freed")
