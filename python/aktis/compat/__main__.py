"""`python -m aktis.compat program.py ...`: see `aktis.compat._run`."""

from aktis.compat._run import main

if __name__ == "__main__":
    main()
