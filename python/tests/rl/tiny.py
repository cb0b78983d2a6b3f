"""Small environments for the tests of `aktis.rl`: quick to learn, or broken in one way each."""

import math
import os
import signal
import threading
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete


class Corridor(gymnasium.Env[Any, Any]):
    """Seven cells; the right end pays 1, each step costs 0.1. Its state can be saved."""

    observation_space = Discrete(7)
    action_space = Discrete(2, start=5)

    def __init__(self, length: int = 20) -> None:
        self.length = length

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell, self.time = int(self.np_random.integers(2, 4)), 0
        return self.cell, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        assert action in (5, 6), "actions begin at the space's start"
        self.cell = min(6, max(0, self.cell + (1 if action == 6 else -1)))
        self.time += 1
        done = self.cell == 6
        return self.cell, 1.0 if done else -0.1, done, self.time >= self.length, {}

    def get_state(self) -> dict[str, int]:
        return {"cell": self.cell, "time": self.time}

    def set_state(self, state: dict[str, int]) -> None:
        self.cell, self.time = state["cell"], state["time"]


class Reach(gymnasium.Env[Any, Any]):
    """A number must be reached: the reward is minus the distance of the action from what was observed."""

    observation_space = Box(-1, 1, (2, 1), np.float32)
    action_space = Box(-2, 2, (1,), np.float32)

    def _observe(self) -> Any:
        self.goal = self.np_random.uniform(-1, 1, (2, 1)).astype(np.float32)
        return self.goal

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        reward = -abs(float(action[0]) - float(self.goal[0, 0]))
        self.time += 1
        return self._observe(), reward, False, self.time >= 10, {}


class Faulty(Corridor):
    """Breaks its promises at the third step, in the way that `fault` names."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.observation_space = Dict() if fault == "dict" else Box(-9, 9, (1,), np.float32)  # type: ignore

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self._vector(super().reset(seed=seed)[0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        cell, reward, done, late, info = super().step(action)
        if self.fault == "endless":
            self.cell = 3
            return self._vector(3), 0.0, False, False, info
        if self.time == 3:
            if self.fault == "raises":
                raise ZeroDivisionError("no such cell")
            if self.fault == "nan":
                return np.full(1, np.nan), reward, done, late, info
            if self.fault == "nan reward":
                return self._vector(cell), float("nan"), done, late, info
            if self.fault == "shape":
                return np.zeros(5), reward, done, late, info
        return self._vector(cell), reward, False, late, info

    def _vector(self, cell: int) -> Any:
        return np.full(1, cell, np.float32)


class Hanging(Corridor):
    """Hangs in the call that `verb` names: in Python, or in native code that nothing can interrupt."""

    def __init__(self, verb: str) -> None:
        super().__init__()
        self.verb = verb
        if verb == "constructor":
            time.sleep(60)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        if self.verb == "reset":
            threading.Event().wait(60)
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        if self.verb == "step":
            try:
                time.sleep(60)
            except Exception:  # an environment that swallows errors still ends
                pass
        if self.verb == "native step":
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
            time.sleep(60)
        if self.verb == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.verb == "memory":
            bytearray(1 << 60)
        return super().step(action)


class Brittle(Corridor):
    """Fails at its step number `at` in the way that `trouble` names; once in all if `once` names a file."""

    def __init__(self, trouble: str, once: str = "", at: int = 5) -> None:
        super().__init__()
        self.trouble, self.once, self.at = trouble, once, at
        self.count = 0

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.count += 1
        if self.count == self.at and self._is_due():
            if self.trouble == "raises":
                raise OSError("the licence has expired")
            if self.trouble == "hangs":
                threading.Event().wait(60)
            if self.trouble == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.trouble == "nan":
                return math.nan, 0.0, False, False, {}  # type: ignore[return-value]
        return super().step(action)

    def _is_due(self) -> bool:
        if not self.once:
            return True
        try:
            os.close(os.open(self.once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True
