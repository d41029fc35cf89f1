"""Progress of a command that takes more than two seconds, on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Timer

DELAY = 2.0  # seconds


@contextmanager
def progress(title: str) -> Iterator[Callable[[float], None]]:
    """
    Show a bar on stderr while the block runs, if it takes more than two seconds and stderr is a terminal.

    Yields:
        A function that receives the share of the work that is done. Before its first call, the bar shows no share.
    """
    if not sys.stderr.isatty() or find_spec("rich") is None:
        yield lambda _share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn()
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(title, total=None)
    timer = Timer(DELAY, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda share: bar.update(task, completed=share, total=1.0)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
