"""`ampscale report`: a page with pictures of a run."""

from pathlib import Path

import click

from ..diagnostics.run_files import read_run
from ..files import write_atomically
from .commands import command, usage_errors
from .progress import progress
from .report_page.render import html_of
from .trace_options import FILE


@command(
    "ampscale report run.jsonl", "ampscale report run.jsonl --out report.html", short_help="Write a page with pictures of a run."
)
@click.argument("run", metavar="RUN", type=FILE)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="File to write. [default: RUN with .html]")
def report(run: Path, out: Path | None) -> None:
    """
    Write a page about a run: the scale with skipped steps, the exponents of each gradient, and the verdicts.

    RUN is a file that `ampscale.diagnostics.JSONLines` wrote or is writing. The page is one HTML file, and needs no network.
    """
    target = out or run.with_suffix(".html")
    with usage_errors():
        if target.exists() and target.samefile(run):
            raise ValueError(f"--out must not be the file that is read, got {target}")
        with progress("Reading") as advance:
            content = read_run(run, advance)
        write_atomically(target, html_of(content, f"Loss scale of {run.name}"))
    click.echo(f"Page: {target}")
