"""`multiprocessing.Pool`, with actors as its processes: change the import and nothing else.

    from aktis.util.multiprocessing import Pool

    with Pool(processes=4) as pool:
        print(pool.map(abs, [-1, -2, -3]))

The processes may be on other machines, and a function need not be importable there.
"""

from multiprocessing import TimeoutError

from aktis.util.multiprocessing.pool import Pool
from aktis.util.multiprocessing.results import AsyncResult

__all__ = ["AsyncResult", "Pool", "TimeoutError"]
