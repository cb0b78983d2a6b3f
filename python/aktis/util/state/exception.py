"""What the state functions raise when the engine does not answer."""

__all__ = ["AktisStateApiException", "RayStateApiException"]


class AktisStateApiException(RuntimeError):
    """The state of the session cannot be read now."""


RayStateApiException = AktisStateApiException
