"""Products and attention in C, for processors with AVX-512 and no matrix unit: compiled when the package is installed.

They are optional. Without a C compiler, or on another processor, PyTorch's kernels serve, and results differ
in their last digits alone.
"""
