"""Where the calling code runs, under the module's name that users of Ray import it from."""

from aktis._runtime_context import RuntimeContext, get_runtime_context

__all__ = ["RuntimeContext", "get_runtime_context"]
