"""Networks, called like functions: `v(s, R, C, t)` on the page is V(s, R^, C^, t') in the paper."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key


class EmbeddedMLP(eqx.Module):
    """An MLP whose inputs each pass a linear embedding first; ReLU between linear layers.

    The embeddings are linear and so is the first layer, hence embedding, concatenation and first
    layer collapse into one small matrix: W_1 (E_1 x_1 + e_1) + W_2 (E_2 x_2 + e_2) + .. = M x + m.
    The parameters stay those of the paper and so do their gradients; only the wide product is never
    formed. Activations are (features, batch): weight gradients are then products of the fast kind.
    """

    embeddings: tuple[Float[Array, "e _"], ...]
    shifts: tuple[Float[Array, " e"], ...]
    weights: tuple[Float[Array, "_ _"], ...]
    """Each (outputs, inputs)."""
    biases: tuple[Float[Array, " _"], ...]

    def __init__(
        self,
        in_sizes: Sequence[int],
        out_size: int,
        *,
        embedding: int,
        hidden: int,
        layers: int,
        key: Key[Array, ""],
    ):
        sizes = [embedding * len(in_sizes)] + [hidden] * (layers - 1) + [out_size]
        embedding_key, layer_key = jax.random.split(key)
        keys = jax.random.split(embedding_key, len(in_sizes))
        self.embeddings = tuple(
            _uniform(k, (embedding, i), 3.0) for k, i in zip(keys, in_sizes, strict=True)
        )
        self.shifts = tuple(jnp.zeros(embedding) for _ in in_sizes)
        keys = jax.random.split(layer_key, layers)
        gains = [6.0] * (layers - 1) + [1.0]  # He before a ReLU, small at the output
        self.weights = tuple(
            _uniform(k, (o, i), g)
            for k, i, o, g in zip(keys, sizes[:-1], sizes[1:], gains, strict=True)
        )
        self.biases = tuple(jnp.zeros(o) for o in sizes[1:])

    def __call__(self, *inputs: Float[Array, "b _"]) -> Float[Array, "b o"]:
        """Evaluate on a batch; one argument per embedded input."""
        parts = jnp.split(self.weights[0], len(inputs), axis=1)
        fused = jnp.concatenate(
            [w @ e for w, e in zip(parts, self.embeddings, strict=True)], axis=1
        )
        shift = self.biases[0] + sum(w @ e for w, e in zip(parts, self.shifts, strict=True))
        x = fused @ jnp.concatenate(inputs, axis=1).T + shift[:, None]
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            x = weight @ jax.nn.relu(x) + bias[:, None]
        return x.T


def _uniform(key: Key[Array, ""], shape: tuple[int, int], gain: float) -> Float[Array, "o i"]:
    """Uniform with variance gain / (3 inputs)."""
    bound = (gain / shape[1]) ** 0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)
