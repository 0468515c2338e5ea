"""For tests of networks: compiling takes most of their time, and running next to none."""

import functools

import jax

from safestitch.training.loop import compiler_options

QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    **compiler_options(),
}
quick_jit = functools.partial(jax.jit, compiler_options=QUICK)
