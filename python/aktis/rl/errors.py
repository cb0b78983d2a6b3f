"""Errors of `aktis.rl`. Each message names what is wrong; its `hint:` line says what to do."""


class RLError(Exception):
    """What all errors of `aktis.rl` have in common."""


class ConfigError(RLError, ValueError):
    """A setting has a wrong type or lies outside of what is allowed."""


class SpaceError(RLError, ValueError):
    """An algorithm cannot work with a space of the environment."""


class ModelError(RLError, ValueError):
    """A model returned something of a wrong shape, or numbers that are not finite."""


class EnvironmentFault(RLError, RuntimeError):
    """An environment raised, never ended an episode, or returned something that its spaces do not allow."""


class CheckpointError(RLError, ValueError):
    """A file is not a checkpoint that this version can load."""
