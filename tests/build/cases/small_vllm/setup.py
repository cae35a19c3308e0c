"""A build of the same shape as vLLM's: CMake makes the extensions, the environment says for what."""

import os
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
DEVICE = os.environ.get("VLLM_TARGET_DEVICE", "cuda")


class CMakeExtension(Extension):
    def __init__(self, name):
        super().__init__(name, sources=[], py_limited_api=True)


class CMakeBuild(build_ext):
    def build_extensions(self):
        temp = Path(self.build_temp).absolute()
        temp.mkdir(parents=True, exist_ok=True)
        out = Path(self.get_ext_fullpath("vllm._C")).parent.absolute()
        out.mkdir(parents=True, exist_ok=True)
        configure = [
            "cmake", str(ROOT), f"-DVLLM_TARGET_DEVICE={DEVICE}",
            f"-DPYTHON_INCLUDE={sysconfig.get_path('include')}", f"-DCMAKE_INSTALL_PREFIX={out}",
            *os.environ.get("CMAKE_ARGS", "").split(),
        ]
        subprocess.check_call(configure, cwd=temp)
        jobs = os.environ.get("MAX_JOBS", "1")
        subprocess.check_call(["cmake", "--build", ".", f"-j{jobs}"], cwd=temp)
        # What a test wants to happen half-way through a build.
        waiting = os.environ.get("SMALL_WAIT_FILE")
        if waiting:
            (out / "half.abi3.so").write_bytes(b"half of an extension")
            Path(waiting).write_text(str(os.getpid()))
            time.sleep(120)
        subprocess.check_call(["cmake", "--install", "."], cwd=temp)


if DEVICE == "empty":
    extensions = []
elif DEVICE in ("cpu", "cuda"):
    extensions = [CMakeExtension("vllm._C")]
else:
    sys.exit("Unknown runtime environment")

setup(
    name="vllm",
    version="1.2.3",
    packages=["vllm"],
    ext_modules=extensions,
    cmdclass={"build_ext": CMakeBuild},
)
