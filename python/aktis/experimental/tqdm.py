"""`aktis.util.tqdm`, where programs may look for it."""

from aktis.util.tqdm import safe_print, tqdm, trange

__all__ = ["safe_print", "tqdm", "trange"]
