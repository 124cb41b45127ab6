"""CUDA kernels and what brings them to the device: sources, constants, shapes, compiler, launcher, loader.

field.cuh and curve.cuh hold the arithmetic; ntt.cu, msm.cu, pointwise.cu and fixed_base.cu the kernels. `shapes`
decides passes, windows and memory in plain Python, `loader.Kernels` queues the launches, `finish` turns an MSM's few
points into one.
"""
