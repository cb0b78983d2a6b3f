"""A parameter server: shards in actors hold the parameters, workers send gradients.

    server = ParameterServer({"w": numpy.zeros(1000)}, num_shards=2, optimizer=SGD(0.1), num_workers=4)

    def train_loop(config):
        server = config["server"]
        parameters = server.pull()
        for batch in batches:
            parameters = server.push_pull(gradients(parameters, batch))

In synchronous mode the mean of all workers' gradients is applied, and `push_pull` waits for the others. In
asynchronous mode each gradient is applied as it comes, so a slow worker holds nobody up.

1. The parameters are one long vector, cut into shards of equal length, whatever their shapes.
2. A shard counts its steps. In synchronous mode it drops a gradient for a step that is over, so a worker
   that is restarted and repeats a step does no harm.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aktis
from aktis.exceptions import AktisError
from aktis.train import session
from aktis.train.config import check_count

__all__ = ["SGD", "Adam", "ParameterServer", "ParameterServerTimeout"]

Array = Any
Tree = Any
"""A dictionary or a list of arrays of numpy or tensors of torch, or a single one."""


class ParameterServerTimeout(AktisError, TimeoutError):
    """A step of a synchronous server was not complete in time. The text names the missing workers."""


@dataclass
class SGD:
    """Stochastic gradient descent, with momentum if there is one."""

    lr: float = 0.01
    momentum: float = 0.0

    def __post_init__(self) -> None:
        if not self.lr > 0 or not 0 <= self.momentum < 1:
            raise ValueError(
                f"`lr` must be positive and `momentum` in [0, 1), got {self.lr} and {self.momentum}"
                "\nhint: for example SGD(lr=0.01, momentum=0.9)"
            )

    def begin(self, parameters: Array) -> dict[str, Array]:
        import numpy

        return {"velocity": numpy.zeros_like(parameters)} if self.momentum else {}

    def apply(self, parameters: Array, gradient: Array, state: dict[str, Array], step: int) -> None:
        if self.momentum:
            state["velocity"] *= self.momentum
            state["velocity"] += gradient
            gradient = state["velocity"]
        parameters -= self.lr * gradient


@dataclass
class Adam:
    """Adam, as Kingma and Ba have it."""

    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        if not self.lr > 0 or not 0 <= self.beta1 < 1 or not 0 <= self.beta2 < 1:
            raise ValueError(
                f"`lr` must be positive, `beta1` and `beta2` in [0, 1), got {self}"
                "\nhint: for example Adam(lr=0.001)"
            )

    def begin(self, parameters: Array) -> dict[str, Array]:
        import numpy

        return {"mean": numpy.zeros_like(parameters), "square": numpy.zeros_like(parameters)}

    def apply(self, parameters: Array, gradient: Array, state: dict[str, Array], step: int) -> None:
        mean, square = state["mean"], state["square"]
        mean += (1 - self.beta1) * (gradient - mean)
        square += (1 - self.beta2) * (gradient * gradient - square)
        scale = self.lr / (1 - self.beta1**step)
        parameters -= scale * mean / ((square / (1 - self.beta2**step)) ** 0.5 + self.epsilon)


class Shard:
    """An actor that holds one piece of the vector. Asynchronous, so that workers can wait in it together."""

    def __init__(self, piece: Array, optimizer: Any, num_workers: int | None, timeout_s: float) -> None:
        import asyncio

        self._parameters = piece.copy()
        self._optimizer = optimizer
        self._state = optimizer.begin(self._parameters)
        self._step = 0
        self._num_workers = num_workers
        self._timeout_s = timeout_s
        self._gradients: dict[int, Array] = {}
        self._stepped = asyncio.Condition()

    async def pull(self) -> tuple[int, Array]:
        """The number of steps made, and the piece."""
        return self._step, self._parameters.copy()

    async def push(self, gradient: Array, worker: int, step: int, answer: bool) -> tuple[int, Array | None]:
        """Takes a worker's gradient for the step after `step`; the piece as it is after it."""
        if self._num_workers is None:
            self._apply(gradient)
        elif step == self._step:
            await self._join(gradient, worker, step)
        return self._step, self._parameters.copy() if answer else None

    async def _join(self, gradient: Array, worker: int, step: int) -> None:
        import asyncio

        assert self._num_workers is not None
        self._gradients[worker] = gradient
        async with self._stepped:
            if self._is_complete():
                self._finish()
                return
            try:
                await asyncio.wait_for(self._stepped.wait_for(lambda: self._step > step), self._timeout_s)
            except TimeoutError:
                if self._step > step:
                    return
                missing = sorted(set(range(self._num_workers)) - set(self._gradients))
                raise ParameterServerTimeout(
                    f"step {step + 1} was not complete after {self._timeout_s:g} s: no gradient came from "
                    f"the workers {', '.join(map(str, missing))}\n"
                    "hint: `set_num_workers` lets the others go on without a worker that is gone"
                ) from None

    def _is_complete(self) -> bool:
        return self._num_workers is not None and len(self._gradients) >= self._num_workers

    def _finish(self) -> None:
        # In the order of the workers, so that the sum does not depend on who comes first.
        gradients = [self._gradients[worker] for worker in sorted(self._gradients)]
        total = gradients[0].copy()
        for gradient in gradients[1:]:
            total += gradient
        self._gradients.clear()
        self._apply(total / len(gradients))
        self._stepped.notify_all()

    def _apply(self, gradient: Array) -> None:
        self._step += 1
        self._optimizer.apply(self._parameters, gradient, self._state, self._step)

    async def set_num_workers(self, num_workers: int) -> None:
        """From now on a step needs so many gradients."""
        async with self._stepped:
            self._num_workers = num_workers
            if self._gradients and self._is_complete():
                self._finish()

    async def state(self) -> dict[str, Any]:
        """What a checkpoint needs."""
        return {"parameters": self._parameters, "state": self._state, "step": self._step}

    async def load_state(self, state: dict[str, Any]) -> None:
        """Goes back to a checkpoint."""
        import copy

        async with self._stepped:
            self._parameters = state["parameters"].copy()
            self._state = copy.deepcopy(state["state"])
            self._step = state["step"]
            self._gradients.clear()
            self._stepped.notify_all()


class ParameterServer:
    """A handle of a parameter server. It can be passed to tasks, actors and training functions.

    `parameters` is a dictionary or a list of arrays or tensors, or a `torch.nn.Module`; `pull` gives them
    back in this form. `optimizer` is `SGD`, `Adam`, or an object of your own with their methods `begin` and
    `apply`. `mode` is "sync" or "async"; a synchronous server needs `num_workers`. The shards live as long
    as a handle.
    """

    def __init__(
        self,
        parameters: Tree,
        *,
        num_shards: int = 2,
        optimizer: Any = None,
        mode: str = "sync",
        num_workers: int | None = None,
        timeout_s: float = 60.0,
        resources_per_shard: Mapping[str, float] | None = None,
    ) -> None:
        check_count("num_shards", num_shards, 1)
        if mode not in ("sync", "async"):
            raise ValueError(
                f'`mode` must be "sync" or "async", got {mode!r}'
                '\nhint: "sync" adds the gradients of all workers, "async" takes each as it comes'
            )
        if mode == "sync":
            if num_workers is None:
                raise ValueError(
                    'mode="sync" needs `num_workers`: how many gradients make a step'
                    "\nhint: give the number of workers that push"
                )
            check_count("num_workers", num_workers, 1)
        if not timeout_s > 0:
            raise ValueError(
                f"`timeout_s` must be positive, got {timeout_s}\nhint: give seconds, e.g. timeout_s=60"
            )
        self._layout = Layout.of(parameters)
        vector = self._layout.flatten(parameters)
        if num_shards > len(vector):
            raise ValueError(f"{num_shards} shards for {len(vector)} parameters\nhint: use fewer shards")
        self._bounds = [len(vector) * index // num_shards for index in range(num_shards + 1)]
        held = dict(resources_per_shard or {})
        options = {"num_cpus": held.pop("CPU", 0), **({"resources": held} if held else {})}
        shard = aktis.remote(Shard).options(**options)
        self._shards = [
            shard.remote(
                vector[begin:end], optimizer or SGD(), num_workers if mode == "sync" else None, timeout_s
            )
            for begin, end in zip(self._bounds, self._bounds[1:])
        ]
        self.mode = mode
        self._step = 0

    @property
    def step(self) -> int:
        """The step that the parameters are from which this handle has seen last."""
        return self._step

    def pull(self) -> Tree:
        """The parameters as they are."""
        return self._received(aktis.get([shard.pull.remote() for shard in self._shards]))

    def push(self, gradients: Tree, worker: int | None = None) -> None:
        """Sends gradients. In synchronous mode it waits until those of the other workers have come.

        `worker` is the number of the caller; a training function need not say it.
        """
        self._push(gradients, worker, answer=False)

    def push_pull(self, gradients: Tree, worker: int | None = None) -> Tree:
        """Sends gradients, and gives the parameters after them: `push` and `pull` in one round trip."""
        return self._push(gradients, worker, answer=True)

    def _push(self, gradients: Tree, worker: int | None, answer: bool) -> Tree:
        import numpy

        if worker is None:
            worker = session.get_context().get_world_rank() if session.in_session() else 0
        vector = self._layout.flatten(gradients, "the gradients")
        if not numpy.isfinite(vector).all():
            # Applied, they would be in the parameters of all workers.
            raise ValueError(
                f"the gradients of worker {worker} are not finite, and were not sent"
                "\nhint: lower the learning rate, clip gradients, or leave out such a step"
            )
        refs = [
            shard.push.remote(vector[begin:end], worker, self._step, answer)
            for shard, begin, end in zip(self._shards, self._bounds, self._bounds[1:])
        ]
        return self._received(aktis.get(refs))

    def _received(self, pieces: Sequence[tuple[int, Array | None]]) -> Tree:
        import numpy

        self._step = min(step for step, _ in pieces)
        arrays = [piece for _, piece in pieces if piece is not None]
        return self._layout.unflatten(numpy.concatenate(arrays)) if arrays else None

    def pull_into(self, module: Any) -> None:
        """Copies the parameters into a `torch.nn.Module`."""
        import torch

        values = self.pull()
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.copy_(values[name])

    def push_pull_into(self, module: Any, worker: int | None = None) -> None:
        """Sends the gradients of a `torch.nn.Module`, and copies the parameters after them into it."""
        import torch

        gradients = {
            name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for name, parameter in module.named_parameters()
        }
        values = self.push_pull(gradients, worker)
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.copy_(values[name])

    def set_num_workers(self, num_workers: int) -> None:
        """From now on a step needs so many gradients: fewer after a worker is gone, or more."""
        check_count("num_workers", num_workers, 1)
        if self.mode != "sync":
            raise ValueError(
                "an asynchronous server does not count its workers"
                '\nhint: use mode="sync" to make steps of a number of gradients'
            )
        aktis.get([shard.set_num_workers.remote(num_workers) for shard in self._shards])

    def state(self) -> list[dict[str, Any]]:
        """Parameters and the optimizer's state of all shards, to be pickled into a checkpoint."""
        return list(aktis.get([shard.state.remote() for shard in self._shards]))

    def load_state(self, state: list[dict[str, Any]]) -> None:
        """Goes back to what `state` gave, of a server with the same parameters and shards."""
        if [len(piece["parameters"]) for piece in state] != [
            end - begin for begin, end in zip(self._bounds, self._bounds[1:])
        ]:
            raise ValueError(
                "the state is of a server with other parameters or another number of shards"
                "\nhint: restore it into a server that is made with the same parameters and `num_shards`"
            )
        aktis.get([shard.load_state.remote(piece) for shard, piece in zip(self._shards, state)])
        self._step = min(piece["step"] for piece in state)

    def __repr__(self) -> str:
        return f"ParameterServer({self._bounds[-1]} parameters, {len(self._shards)} shards, {self.mode})"


class Layout:
    """How the parameters lie in the vector."""

    def __init__(
        self, keys: list[Any] | None, kind: type, leaves: list[tuple[tuple[int, ...], Any, bool]]
    ) -> None:
        self._keys = keys
        self._kind = kind
        self._leaves = leaves
        """Of each array: its shape, its dtype in numpy's words, and whether it is a tensor."""

    @classmethod
    def of(cls, tree: Tree) -> "Layout":
        """The layout of these parameters."""
        keys, kind, values = take_apart(tree)
        if not values:
            raise ValueError(
                "there are no parameters\nhint: give at least one array, e.g. a dict of arrays by name"
            )
        leaves = []
        for value in values:
            array = as_array(value)
            if array.dtype.kind != "f":
                raise TypeError(
                    f"parameters must be floating-point numbers, got {array.dtype}"
                    "\nhint: convert them by `astype(np.float32)`"
                )
            leaves.append((array.shape, array.dtype, is_tensor(value)))
        return cls(keys, kind, leaves)

    def flatten(self, tree: Tree, what: str = "the parameters") -> Array:
        """One vector of all values."""
        import numpy

        keys, _, values = take_apart(tree)
        if keys is not None and self._keys is not None and set(keys) == set(self._keys):
            by_key = dict(zip(keys, values))
            values = [by_key[key] for key in self._keys]
        elif keys != self._keys or len(values) != len(self._leaves):
            raise ValueError(
                f"{what} must be {self._names()}, got {keys or len(values)}"
                "\nhint: give a value for each parameter that the server was made with"
            )
        arrays = [as_array(value) for value in values]
        for index, (array, (shape, _, _)) in enumerate(zip(arrays, self._leaves)):
            if array.shape != shape:
                name = self._keys[index] if self._keys is not None else index
                raise ValueError(
                    f"{what} have the shape {array.shape} for {name!r}, which has {shape}"
                    "\nhint: give gradients in the shapes of the parameters"
                )
        dtype = numpy.result_type(*(dtype for _, dtype, _ in self._leaves))
        return numpy.concatenate([array.reshape(-1) for array in arrays]).astype(dtype, copy=False)

    def unflatten(self, vector: Array) -> Tree:
        """The values of a vector in the form of the parameters."""
        values = []
        begin = 0
        for shape, dtype, tensor in self._leaves:
            length = 1
            for extent in shape:
                length *= extent
            array = vector[begin : begin + length].reshape(shape).astype(dtype, copy=False)
            values.append(as_tensor(array) if tensor else array)
            begin += length
        if self._keys is not None:
            return dict(zip(self._keys, values))
        return values[0] if self._kind not in (list, tuple) else self._kind(values)

    def _names(self) -> str:
        return f"a dictionary of {self._keys}" if self._keys is not None else f"{len(self._leaves)} arrays"


def take_apart(tree: Tree) -> tuple[list[Any] | None, type, list[Any]]:
    """The keys if it is a dictionary, what it is, and the arrays."""
    if hasattr(tree, "named_parameters"):
        tree = dict(tree.named_parameters())
    if isinstance(tree, Mapping):
        return list(tree), dict, list(tree.values())
    if isinstance(tree, list | tuple):
        return None, type(tree), list(tree)
    return None, object, [tree]


def is_tensor(value: Any) -> bool:
    """Whether the value is a tensor of torch, without importing torch."""
    return type(value).__module__.split(".")[0] == "torch"


def as_array(value: Any) -> Array:
    """An array of numpy; of a tensor on the CPU without a copy."""
    import numpy

    return value.detach().cpu().numpy() if is_tensor(value) else numpy.asarray(value)


def as_tensor(array: Array) -> Any:
    """A tensor of torch."""
    import torch

    make: Callable[[Array], Any] = torch.from_numpy
    return make(array)
