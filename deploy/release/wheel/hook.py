"""Puts the binary into the wheel as a script, under the platform tag that `package.py` found."""

import os
import pathlib

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BinaryHook(BuildHookInterface):
    """The binary `asynclane` beside this file, and its list of packages if there is one."""

    def initialize(self, version, build_data):
        folder = pathlib.Path(self.root)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{os.environ['ASYNCLANE_WHEEL_PLATFORM']}"
        build_data["shared_scripts"] = {str(folder / "asynclane"): "asynclane"}
        sbom = folder / "asynclane.cdx.json"
        if sbom.exists():
            build_data["sbom_files"] = [str(sbom)]
