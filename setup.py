"""What ``pyproject.toml`` has no settled words for: the worker's kernels in C."""

from setuptools import Extension, setup

NATIVE = "worker/engine/native"

setup(
    ext_modules=[
        Extension(
            "worker.engine.native._kernels",
            [f"{NATIVE}/{name}.c" for name in ("project", "project_int8", "attend", "elementwise")],
            depends=[f"{NATIVE}/{name}.h" for name in ("vectors", "tiles", "attend_block")],
            extra_compile_args=["-O3", "-std=c11", "-fopenmp", "-fvisibility=hidden"],
            extra_link_args=["-fopenmp"],
            libraries=["m"],
            optional=True,  # without a C compiler, or on another processor, PyTorch's kernels serve
        )
    ]
)
