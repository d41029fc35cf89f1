"""Threads of the fused NumPy passes: equal results, errors, interpreter shutdown and forks."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations

import numpy as np
import pytest
from backends.numpy.test_backend import random
from backends.third_party.wheels import python
from strategies import DTYPES, same

from ampscale.backends.cpu import fused, threads
from ampscale.backends.numpy import backend, blocks


def results_with(count, tree, monkeypatch):
    """Return the results of four functions with *count* threads."""
    monkeypatch.setenv(threads.VARIABLE, str(count))
    clipped = backend.clip_by_global_norm(tree, 1.0)
    return [backend.unscale_check_and_norm(tree, 3.0), clipped, backend.local_norms(tree), backend.all_finite(tree)]


@pytest.mark.clause("BACKENDS-bit-identical")
def test_results_do_not_depend_on_the_number_of_threads(monkeypatch):
    """Arrays are large and small, of several dtypes; in the end several callers run at once."""
    monkeypatch.setattr(fused, "SEGMENT", 1 << 14)
    monkeypatch.setattr(fused, "THREADED", 1 << 16)
    monkeypatch.setattr(blocks, "THREADED", 1 << 18)
    tree = [random(120_000), random(300, seed=1), random(50_000, np.float16, 2), random((350, 450), np.complex64, 3)[:, ::2]]
    tree += [random(60_000, np.float64, seed) for seed in range(16, 32)]  # some sums would differ if one thread cut no array
    tree += [random(100, DTYPES["bfloat16"], 5), random(80_000, DTYPES["bfloat16"], 6)]
    expected = results_with(1, tree, monkeypatch)
    for count in (2, 3, 64):
        assert same(results_with(count, tree, monkeypatch), expected)
    with ThreadPoolExecutor(3) as pool:
        for results in pool.map(lambda _: results_with(2, tree, monkeypatch), range(3)):
            assert same(results, expected)


def test_an_invalid_number_of_threads_raises(monkeypatch):
    """The environment variable is read only if an array is large enough for threads."""
    array = np.ones(5_000_000)
    for wrong in ("0", "-1", "two", "", "1.5", " 2"):
        monkeypatch.setenv(threads.VARIABLE, wrong)
        with pytest.raises(ValueError, match=f"AMPSCALE_THREADS must be a positive int of at most nine digits, got {wrong!r}"):
            backend.all_finite([array])


def test_the_default_number_of_threads_is_that_of_usable_cores(monkeypatch):
    """The environment variable overrides the default."""
    monkeypatch.delenv(threads.VARIABLE, raising=False)
    threads._usable_cores.cache_clear()
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert threads.thread_count_host() == usable
    monkeypatch.setenv(threads.VARIABLE, "7")
    assert threads.thread_count_host() == 7


def doubled(item):
    return 2 * item


def test_errors_in_threads_are_raised_after_all_threads_have_ended():
    """Two of three threads fail. Without an error, the results are in the order of the items."""
    barrier, ended = threading.Barrier(3), []

    def fail(item):
        barrier.wait()
        if item < 3:
            raise KeyError(item)
        time.sleep(0.05)
        ended.append(item)

    assert threads.in_threads(doubled, [2, 3, 4, 5, 6], 3) == [4, 6, 8, 10, 12]
    assert threads.in_threads(doubled, [], 1) == []
    for items in permutations((1, 2, 3)):
        with pytest.raises(KeyError):
            threads.in_threads(fail, list(items), 3)
        assert ended.pop() == 3


def test_the_caller_does_all_the_work_if_no_thread_can_start(monkeypatch):
    """After an error, no item is left for a thread that starts later."""
    started = []

    def refuse(thread):
        raise RuntimeError(f"can't start {thread}")

    def fail(item):
        started.append(item)
        raise KeyError(started)

    threads._pool.cache_clear()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert threads.in_threads(doubled, [2, 3, 4], 3) == [4, 6, 8]
    with pytest.raises(KeyError):
        threads.in_threads(fail, [2, 3, 4], 3)
    monkeypatch.undo()
    with threads._pool(2) as pool:
        pool.submit(id, None)
    threads._pool.cache_clear()
    assert started == [2]


@pytest.mark.parametrize(
    "last_lines", ["atexit.register(run)", "run(); atexit.register(run)", "threading.Thread(target=outlive).start()"]
)
def test_fused_passes_run_during_interpreter_shutdown(last_lines):
    """Passes run in `atexit`, before or after the threads have started, and in a thread that outlives the main one."""
    code = f"""
        import atexit, os, threading, numpy as np, ampscale
        os.environ["AMPSCALE_THREADS"] = "2"
        main = threading.main_thread()
        def run():
            grads, finite = ampscale.unscale_and_check([np.full(9_000_000, 8.0, np.float32)], 8.0)
            assert bool(finite) and (grads[0] == 1).all()
            print("ran", end=" ")
        def outlive():
            main.join()
            run()
        {last_lines}
    """
    completed = python(textwrap.dedent(code))
    assert (completed.returncode, set(completed.stdout.split()), completed.stderr) == (0, {"ran"}, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_processes_start_their_own_threads():
    """The import starts no thread. The test runs in a new process, since some imported libraries do not support forks."""
    code = """
        import os, threading, numpy as np, ampscale
        assert threading.active_count() == 1
        os.environ["AMPSCALE_THREADS"] = "2"
        def results():
            grads, finite, norm = ampscale.unscale_check_and_norm([np.arange(9_000_000, dtype=np.float32)], 8.0)
            return grads[0].tobytes(), bool(finite), float(norm)
        expected = results()
        child = os.fork()
        if not child:
            os._exit(0 if results() == expected else 1)
        assert os.waitpid(child, 0)[1] == 0
    """
    subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(code)], check=True, timeout=60)
