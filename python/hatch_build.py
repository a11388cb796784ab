"""Gives the wheel the tag of the systems that its program and libraries run on."""

import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelTag(BuildHookInterface):
    def initialize(self, version, build_data):
        tag = os.environ.get("CUTAPE_WHEEL_TAG")
        if not tag:
            raise SystemExit("build the wheel with `cargo xtask dist wheel` in cutape's sources")
        build_data["pure_python"] = False
        build_data["tag"] = tag
