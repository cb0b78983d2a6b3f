"""Measures one row with one peer, and prints the values. `isolation.py` starts it for each round.

usage: python child.py PEER ROW SECONDS [--quick]
"""

import json
import os
import sys

from clock import Clock
from peers import open_session
from rows import ROWS

RESULT = "RESULT "


def main(peer: str, name: str, seconds: str, *flags: str) -> None:
    row = next(row for row in ROWS if row.name == name)
    clock = Clock(float(seconds), "--quick" in flags)
    measure = row.measures[peer]
    if row.opens_session:
        values = measure(None, clock)
        print(RESULT + json.dumps(values), flush=True)
        return
    options = row.options if peer in ("aktis", "ray") else {}
    session = open_session(peer, **options)
    values = measure(session.api, clock)
    # Before the end: what was measured counts, even if the end goes wrong.
    print(RESULT + json.dumps(values), flush=True)
    session.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    # Threads of peers must not keep a process that has said all it had to say.
    os._exit(0)
