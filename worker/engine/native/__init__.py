"""Products and attention in C, for processors with AVX-512 and no matrix unit.

They are compiled when the package is installed, and optional: without a C compiler, or on another processor,
PyTorch's kernels serve, and results differ in their last digits alone.
"""
