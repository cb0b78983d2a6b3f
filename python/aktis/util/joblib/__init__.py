"""joblib, and what is built on it such as scikit-learn, on Aktis instead of processes of its own.

    import joblib
    from aktis.util.joblib import register_aktis

    register_aktis()
    with joblib.parallel_backend("aktis", n_jobs=4):
        joblib.Parallel()(joblib.delayed(abs)(-number) for number in range(10))

Needs the package joblib.
"""

__all__ = ["register_aktis", "register_ray"]


def register_aktis() -> None:
    """Makes `"aktis"` (and `"ray"`, for existing programs) a backend of joblib."""
    try:
        from joblib import register_parallel_backend
    except ImportError as error:
        raise ImportError("joblib is not installed\nhint: pip install joblib") from error
    from aktis.util.joblib.backend import AktisBackend

    register_parallel_backend("aktis", AktisBackend)
    register_parallel_backend("ray", AktisBackend)


register_ray = register_aktis
