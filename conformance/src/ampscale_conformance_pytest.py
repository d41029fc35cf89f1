"""
Options of the pytest plug-in, used by `pytest --pyargs ampscale_conformance.suite`.

pytest imports this module in every run in an environment with the suite. Therefore it is outside the package, imports nothing
by default, and does nothing unless one of its options is used. ampscale_conformance.run.plugin contains the plug-in itself.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:  # without an import of typing, which takes time
    import pytest

SUITE = "ampscale_conformance.suite"
OPTIONS = {
    "adapter": ("PKG.MOD:NAME", "adapter of the implementation, or name of an installed one"),
    "level": ("N", "skip cases above this level"),
    "suite": ("VERSION", "run only the cases of this version of the suite, such as 1.0"),
    "expect": ("FILE", "TOML file of expected failures"),
    "seconds": ("S", "time limit per case [60]"),
}


def pytest_addoption(parser: "pytest.Parser") -> None:
    """Add the options. Each is None by default."""
    group = parser.getgroup("ampscale", f"conformance of a loss scaler: --pyargs {SUITE}")
    for name, (metavar, help) in OPTIONS.items():
        group.addoption(f"--ampscale-{name}", metavar=metavar, help=help, type=float if name == "seconds" else None)


def pytest_configure(config: "pytest.Config") -> None:
    """
    Load the named adapter and register the plug-in that runs the suite.

    Without an adapter, raise an error if the command line names the suite or one of its options.
    """
    if config.getoption("ampscale_adapter") is not None:
        from ampscale_conformance.run.plugin import Run

        config.pluginmanager.register(Run(config), Run.NAME)
    elif _asks_for_the_suite(config):
        import pytest
        from ampscale_conformance.run.plugin import MISSING

        raise pytest.UsageError(MISSING)


def _asks_for_the_suite(config: "pytest.Config") -> bool:
    """Return True if the command line names the suite or one of the options."""
    if any(config.getoption(f"ampscale_{name}") is not None for name in OPTIONS):
        return True
    return any(SUITE in argument.replace("/", ".").replace("\\", ".") for argument in config.args)
