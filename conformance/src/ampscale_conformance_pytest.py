"""
The options of `pytest --pyargs ampscale_conformance.suite`; all else is in ampscale_conformance.run.plugin.

pytest imports this in every run of everybody who has the suite installed. So it lies beside the package and not in it, imports
nothing, and does nothing where no adapter is named.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing is left to those who need it
    import pytest

SUITE = "ampscale_conformance.suite"
OPTIONS = {
    "adapter": ("PKG.MOD:NAME", "the adapter of the implementation, or the name of an installed one"),
    "level": ("N", "leave out the cases above this level"),
    "expect": ("FILE", "TOML file of what it is known to fail"),
    "seconds": ("S", "how long one case may take [60]"),
}


def pytest_addoption(parser: "pytest.Parser") -> None:
    """Adds the options, each of which is None unless it is given."""
    group = parser.getgroup("ampscale", f"conformance of a loss scaler: --pyargs {SUITE}")
    for name, (metavar, help) in OPTIONS.items():
        group.addoption(f"--ampscale-{name}", metavar=metavar, help=help)


def pytest_configure(config: "pytest.Config") -> None:
    """Where an adapter is named, loads it, and with it the part of the plug-in that runs the suite."""
    if config.getoption("ampscale_adapter") is not None:
        from ampscale_conformance.run.plugin import Run

        config.pluginmanager.register(Run(config), Run.NAME)
    elif _asks_for_the_suite(config):
        import pytest
        from ampscale_conformance.run.plugin import MISSING

        raise pytest.UsageError(MISSING)


def _asks_for_the_suite(config: "pytest.Config") -> bool:
    """Whether the suite, or an option of it, is on the command line."""
    if any(config.getoption(f"ampscale_{name}") is not None for name in OPTIONS):
        return True
    return any(SUITE in argument.replace("/", ".").replace("\\", ".") for argument in config.args)
