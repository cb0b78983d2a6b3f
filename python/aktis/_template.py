"""The process that workers are forked from: `python -m aktis._template`.

It imports what workers need, and has one thread and nothing in its buffers when it forks. The native part's
loop returns in each worker, never in the template.
"""

import sys


def main() -> None:
    """Serves the node; in a worker, runs tasks until the session ends."""
    import aktis
    from aktis import _runtime_env, _worker
    from aktis._engine import native

    reset_signals()
    # `init` waits for modules that the program wants preloaded, since one of them may end the process.
    if _runtime_env.wanted_modules():
        _worker.preload()
        prepare = None
    else:
        prepare = _worker.preload
    del aktis
    native.run_template(prepare)
    _worker.main()


def reset_signals() -> None:
    """What the driver does with signals is its own affair: workers are to end when they are told to."""
    import signal

    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


if __name__ == "__main__":
    # The module must not exist twice: functions of `__main__` are those of the user's program.
    sys.modules["aktis._template"] = sys.modules.pop("__main__")
    from types import ModuleType

    sys.modules["__main__"] = ModuleType("__main__")
    main()
