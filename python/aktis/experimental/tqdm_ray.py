"""`aktis.util.tqdm` under the name that existing programs import."""

from aktis.util.tqdm import safe_print, tqdm, trange

__all__ = ["safe_print", "tqdm", "trange"]
