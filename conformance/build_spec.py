"""Build hook: ships the specification inside the wheel. A source distribution has it beside this file, a checkout one above."""

from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SpecHook(BuildHookInterface):
    """Adds spec/ to the wheel as ampscale_conformance/spec; an editable install reads it from the checkout."""

    def initialize(self, version, build_data):
        """Choose the folder, unless the build is an editable one."""
        if version != "editable":
            root = Path(self.root)
            spec = root / "spec" if (root / "spec").is_dir() else root.parent / "spec"
            build_data["force_include"][str(spec)] = "ampscale_conformance/spec"
